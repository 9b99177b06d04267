// Package model is a model of what an API server makes of the answers of its
// authorizers, as KEP-5681 describes it: the union of a chain, the authorization
// filter, what a SubjectAccessReview shows, and the evaluation of conditions during
// admission, in the lazy reading that the KEP proposes and in the eager one.
//
// It is written from the text and shares no code with k8s.io/apiserver. Where the
// text is silent:
//   - an authorizer's malformed answer counts as its failure mode, with an error,
//     which is what the text says of malformed conditions;
//   - in the eager reading a chain of which only one outcome is possible is concrete;
//     the text says so of a conditional deny followed by Deny.
package model
