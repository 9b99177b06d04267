//go:build tools

// Package upstream names the packages to which patches add files: go.mod has what these need, too.
package upstream

import _ "k8s.io/kubernetes/test/e2e/auth"
