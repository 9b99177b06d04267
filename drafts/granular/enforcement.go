package granular

import (
	"slices"
	"strings"

	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// The kinds of what enforces granular verbs.
const (
	// Reference is a proxy before the API server, which does all of the KEP.
	Reference = "reference"
	// Policies are ValidatingAdmissionPolicies, by which an API server of today enforces what is excluded.
	Policies = "policies"
	// Webhook is somebody's admission webhook, which enforces what is excluded.
	Webhook = "webhook"
	// APIServer is a kube-apiserver that implements the KEP: nothing is put before it or into it.
	APIServer = "api-server"
)

// Enforcement is what enforces granular verbs, and how.
type Enforcement struct {
	// Kind is Reference, Policies, Webhook or APIServer.
	Kind string
	// Descriptions are the permissions of fields.
	Descriptions *permissions.Set
	// Steps are those of the reference.
	Steps enforcer.Steps
	// URL is where the webhook is, and CA the authority of its certificate in PEM, if it is not one of the system's.
	URL string
	CA  []byte
	// Kubeconfig is a file to write, by which the webhook may ask the API server.
	Kubeconfig string
}

// isByAdmission reports whether a kind of enforcement is part of an API server's admission. It then enforces what is excluded
// alone.
func isByAdmission(kind string) bool { return kind == Policies || kind == Webhook }

// enforces reports whether a kind enforces anything, so that the model can say what is to be expected of it.
func enforces(kind string) bool {
	return kind == Reference || kind == APIServer || isByAdmission(kind)
}

// applies reports whether an attempt can show something about a kind of enforcement. An API server refuses before
// admission who lacks the ordinary permission.
func (a *Attempt) applies(kind string) bool {
	verb, allowed := strings.CutPrefix(a.Checks[0], "yes ")
	isOrdinary := allowed && verb != permissions.GeneralVerb
	return isOrdinary || !isByAdmission(kind)
}

// isGranted reports whether the actor of an attempt was granted a verb.
func (a *Attempt) isGranted(verb string) bool { return slices.Contains(a.Grants, verb) }
