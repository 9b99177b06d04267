// Package library holds k8s.io/apiserver's own conditional authorization against
// the API-server vectors of KEP-5681, and lists where it does otherwise.
//
// The library is what exists of the KEP in Kubernetes 1.37: the types and the union
// of k8s.io/apiserver/pkg/authorization. There is no feature gate, no field in
// SubjectAccessReview, no review of conditions and no admission plugin yet; what
// only those could show is listed as absent.
package library
