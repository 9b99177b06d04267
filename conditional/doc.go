// Package conditional is the room of KEP-5681, Conditional Authorization. It has no code of its own; read its packages
// in this order, each after what it builds on:
//
//   - vectors: the KEP's wire types, which no release of Kubernetes has, and the test vectors below
//     scenarios/kep-5681: API-server vectors, which judge what an API server makes of its authorizers' answers, and
//     webhook vectors, which judge an authorizer.
//   - model: what the KEP says, as pure code. The tests hold it to every vector; Explore generates cases, and tries
//     whether two phases amount to what one phase amounts to.
//   - library: what k8s.io/apiserver does of the KEP already, held to the API-server vectors, and the list of where it
//     does otherwise.
//   - reference: an authorizer with policies in CEL that speaks the KEP's draft API, and can over-grant for API servers
//     of today.
//   - certification: certifies webhooks by the webhook vectors.
//   - cost: webhook calls and latencies of the KEP's design and of over-granting, on a real API server.
//
// vectors and model are pure. docs/conditional.md and docs/conditional-authorizers.md say what comes out of it.
package conditional
