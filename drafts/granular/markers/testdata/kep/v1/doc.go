// +k8s:deepcopy-gen=package
// +groupName=kep.example.com

// Package v1 has the examples of KEP-3617, "Permission Description System".
package v1
