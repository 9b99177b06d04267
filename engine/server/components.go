package server

import (
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// componentSpaces hold the accounts of components; the second is where kind's default storage runs.
var componentSpaces = []string{"system:serviceaccount:kube-system:", "system:serviceaccount:local-path-storage:"}

// componentUsers are those by which the components of a cluster act that have no certificate of their own.
var componentUsers = []string{"system:apiserver", "kube-apiserver-kubelet-client"}

// probePaths are what a kubelet asks for without credentials. No scenario sends an anonymous request for one.
var probePaths = []string{"/livez", "/readyz", "/healthz"}

const certificatePrefix = "X509SHA256="

// others reports whether a review is about components of a cluster with nodes, which talk all the time.
func (s *Server) others(spec authorizationv1.SubjectAccessReviewSpec) bool {
	if !s.can.Nodes {
		return false
	}
	if a := spec.NonResourceAttributes; spec.User == "system:anonymous" && a != nil && slices.Contains(probePaths, a.Path) {
		return true
	}
	return isComponent(spec.User, spec.Groups, spec.Extra[user.CredentialIDKey])
}

// isComponent reports whether a user is a component of the cluster: each has a credential, or more groups than its name
// brings with it. Somebody whom a scenario impersonates under such a name has neither.
func isComponent(user string, groups, credential []string) bool {
	if len(credential) > 0 {
		return strings.HasPrefix(credential[0], certificatePrefix) ||
			slices.ContainsFunc(componentSpaces, func(space string) bool { return strings.HasPrefix(user, space) })
	}
	return slices.Contains(componentUsers, user) && len(groups) > 1
}

// Components reports whether the cluster has components that ask all the time.
func (s *Server) Components() bool { return s.can.Nodes }
