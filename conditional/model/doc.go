// Package model models conditional authorization as KEP-5681 describes it. It is pure, written from the text, and
// shares no code with k8s.io/apiserver.
//
//   - Evaluate is what a set of conditions amounts to. The tests have the API server around it (the union of a
//     chain, the authorization filter, what a SubjectAccessReview shows, and evaluation during admission, in the
//     lazy reading that the KEP proposes and in the eager one) and hold it to every API-server vector.
//   - Explore generates policies, requests and objects, and holds an authorizer to the first technical requirement
//     of the KEP: two phases amount to the decision that one phase with everything known amounts to.
//
// Where the text is silent: an authorizer's malformed answer counts as its failure mode, with an error, which is
// what the text says of malformed conditions; and in the eager reading a chain of which only one outcome is
// possible is concrete, which the text says of a conditional deny followed by Deny.
//
// CEL's && and || give the same whichever side is an error: error && false is false. The KEP says that they do not
// commute, and so keeps <residual> && false as a Deny condition; in CEL that condition is false, and nothing is
// lost by leaving it out.
//
// Explore computes the one phase without CEL: the generated expressions are made of parts of which is known, from
// the data, whether they are true, false or an error. So is what the first phase must answer: with what is not
// known yet as a fourth value, an answer may be conditional only if no concrete one is certain.
package model
