// Package enforcer is a reference for the checks of KEP-3617 (Fine-Grained Authorization): an authenticating proxy
// before a real API server, which asks for the permissions of the fields that a request changes. It is no API
// server: where the KEP has a step inside the server, this has the nearest thing that can be done from outside,
// and docs/granular.md says where the two must differ.
package enforcer
