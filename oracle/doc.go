// Package oracle is a model of what a Kubernetes API server does with impersonation: version, gate, grants, caches
// and history in; decision, error text, resulting user, access reviews, audit fields and metrics out.
//
// It is written from the documents (KEP-5284, the reference page on user impersonation) and from what servers were
// seen to do, and shares no code with the API server's filter: agreement between the two means something. It is
// pure: it has no clock but Advance, and does no I/O.
//
// What the model does not know:
//   - what storage and admission answer to a request that authorization let
//     through: status codes and texts of such answers are not predicted;
//   - the order of what the API server itself takes from a Go map. A Prediction
//     then says what is possible: Segment.Runs, Prediction.Messages;
//   - relations of the Node authorizer other than those of pods, their service
//     accounts, and the secrets and config maps that they have volumes of.
package oracle
