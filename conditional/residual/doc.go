// Package residual is a model of an authorizer with policies in CEL, as KEP-5681
// wants one to be: it evaluates its policies as far as a SubjectAccessReview lets
// it, answers with what is left of them as conditions, and evaluates those when the
// rest is known ("What is partial evaluation?", "Authorizer requirements").
//
// CEL's && and || give the same whichever side is an error: error && false is
// false. The KEP says that they do not commute, and so keeps <residual> && false as
// a Deny condition; in CEL that condition is false, and nothing is lost by leaving
// it out.
//
// cel-go alone does not do what the KEP asks: PruneAst keeps variables that are
// known in the branches of a conditional, in macros such as all(), and behind the
// first unknown of a list or of arguments. So what is known is written into the
// expression first, and cel-go folds the rest.
package residual
