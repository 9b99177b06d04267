// Package auth has what the tests use of the package that they are for. Patches leave this file out.
package auth

import "k8s.io/kubernetes/test/e2e/framework"

// SIGDescribe is in framework.go there.
var SIGDescribe = framework.SIGDescribe("auth")

// These are in node_authz.go there.
const (
	nodesGroup     = "system:nodes"
	nodeNamePrefix = "system:node:"
)
