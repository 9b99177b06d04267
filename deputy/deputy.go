// Package deputy is about tools that act for many people: a dashboard that
// impersonates each of its users. What a scenario can say about them stands in the
// folder periscope; this package checks on a running API server what it cannot: that
// a pre-flight says what the request then does, that the deputy's own audit trail
// and the API server's say the same, and that a tunnel lets nobody be somebody else.
package deputy
