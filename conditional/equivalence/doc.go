// Package equivalence makes up policies, requests and objects, and holds an
// authorizer to the first technical requirement of KEP-5681: two phases come to the
// decision that one phase with everything known comes to.
//
// One phase is computed here without CEL: the expressions are made of parts of
// which is known, from the data, whether they are true, false or an error. So is
// what the first phase must answer: with what is not known yet as a fourth value, an
// answer may be conditional only if no concrete one is certain.
package equivalence
