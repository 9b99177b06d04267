package granular

import (
	"slices"
	"strings"

	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// The kinds of enforcement of granular verbs.
const (
	// Reference is a proxy before the API server, which does all of the KEP.
	Reference = "reference"
	// Policies are ValidatingAdmissionPolicies, by which an API server of today can enforce excluded fields.
	Policies = "policies"
	// Webhook is an admission webhook of the user that enforces excluded fields.
	Webhook = "webhook"
	// APIServer is a kube-apiserver that implements the KEP. It gets no proxy and no policies.
	APIServer = "api-server"
)

// Enforcement describes what enforces granular verbs, and how.
type Enforcement struct {
	// Kind is Reference, Policies, Webhook or APIServer.
	Kind string
	// Descriptions are the permissions of fields.
	Descriptions *permissions.Set
	// Steps are the steps of the reference.
	Steps enforcer.Steps
	// URL is the address of the webhook. CA is the PEM certificate of its authority, unless the system trusts it.
	URL string
	CA  []byte
	// Kubeconfig is a file to write, by which the webhook may ask the API server.
	Kubeconfig string
}

// isByAdmission reports whether a kind of enforcement is part of the admission of an API server. It then enforces only
// excluded fields.
func isByAdmission(kind string) bool { return kind == Policies || kind == Webhook }

// enforces reports whether a kind enforces anything, so that the model can predict what happens.
func enforces(kind string) bool {
	return kind == Reference || kind == APIServer || isByAdmission(kind)
}

// applies reports whether an attempt can test a kind of enforcement. An API server refuses an actor without the
// ordinary permission before admission.
func (a *Attempt) applies(kind string) bool {
	verb, allowed := strings.CutPrefix(a.Checks[0], "yes ")
	isOrdinary := allowed && verb != permissions.GeneralVerb
	return isOrdinary || !isByAdmission(kind)
}

// isGranted reports whether the actor of an attempt was granted a verb.
func (a *Attempt) isGranted(verb string) bool { return slices.Contains(a.Grants, verb) }
