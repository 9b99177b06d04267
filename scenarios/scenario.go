// Package scenarios holds the behaviours that authzconf checks, one YAML file each, with the Go type they are
// decoded into and the strict loader.
//
// A scenario is data: it names who may do what (grants), sends requests (steps) and states what must be seen
// (expectations). Its path below this folder, without ".yaml", is its stable ID, for example
// "kep-5284/user-info/list-pods-allowed".
package scenarios

import (
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/internal/seq"
)

// Level is how binding a behaviour is: core, extended, or divergence.
type Level string

const (
	// Core is what the documents promise about the decision itself.
	Core Level = "core"
	// Extended is the transcript around a decision: the ordered access reviews, audit fields, metrics, error texts.
	Extended Level = "extended"
	// Divergence is the level of a scenario about a place where a document and the servers differ. It is judged against the
	// servers, and shows the text beside it.
	//
	// The text is in Documented.
	Divergence Level = "divergence"
)

// Scenario is one file with one behaviour: who asks for what, who was granted what, and what must happen. Its path is its ID.
//
// The zero value is not usable: scenarios come from Load, which checks the format.
type Scenario struct {
	// ID is the file's path below the scenarios folder without extension, as the loader sets it.
	ID   string `json:"-" yaml:"-" bind:"keep"`
	File string `json:"-" yaml:"-" bind:"keep"` // the path the scenario was read from, for error messages
	// Digest is the SHA-256, in hexadecimal, of the file's bytes and of those of its fixtures. Evidence carries
	// it, so that a verdict cannot be recomputed with another text than the one that was run.
	Digest string `json:"-" yaml:"-" bind:"keep"`

	// Description says in one or two sentences what is shown and why it matters.
	Description string `json:"description" yaml:"description" bind:"keep"`
	// Source is the document and section that the behaviour comes from.
	Source Source `json:"source" yaml:"source" bind:"keep"`
	Level  Level  `json:"level" yaml:"level"` // the strength of the claim
	// Documented is what the document says, in its words, when Level is Divergence. It is shown beside the result.
	Documented string `json:"documented,omitempty" yaml:"documented,omitempty" bind:"keep"`
	// Requires selects the targets this scenario can run on.
	Requires Requires `json:"requires" yaml:"requires" bind:"keep"`
	// Twin is the allowed scenario that differs from a denied one in a single permission or field, so that nothing else can be
	// the cause of the denial.
	//
	// It is named by its ID. A scenario with a denied request must have one.
	Twin string `json:"twin,omitempty" yaml:"twin,omitempty" bind:"keep"`
	// Setup names what this scenario shares with others of the same name: they have the same requestors, objects
	// and grants, and their requests are for servers of different versions or gates. An upgrade path makes a setup
	// once, under one name, and replays on each stage the scenario of it that is for it.
	Setup string `json:"setup,omitempty" yaml:"setup,omitempty" bind:"keep"`

	// Names are further names to make unique (see Bind). Those of requestors, of objects and namespaces, and the
	// nodes, service accounts and plain users that are impersonated are found without being listed.
	Names []string `json:"names,omitempty" yaml:"names,omitempty"`
	// Nodes are names for real nodes, with kubelets: another one each. BindOn puts the real names in their place.
	Nodes []string `json:"nodes,omitempty" yaml:"nodes,omitempty"`
	// Requestors are those who authenticate, by the alias that requests use. Left out it is the user impersonator.
	Requestors map[string]Requestor `json:"requestors" yaml:"requestors"`
	// Fixtures are manifests of the fixtures folder that are applied before the first step, by their path there:
	// "docs-user-impersonation/user-identity.yaml".
	Fixtures []string `json:"fixtures,omitempty" yaml:"fixtures,omitempty" bind:"keep"`
	// Objects are further Kubernetes objects that are created before the first step. Namespaces, and the service
	// accounts, pods and nodes of requestors, are created without being listed.
	Objects []map[string]any `json:"objects,omitempty" yaml:"objects,omitempty"`
	// Grants are neutral permissions: rendered as RBAC on a cluster, exported as policy for an authorizer's vendor.
	Grants []Grant `json:"grants,omitempty" yaml:"grants,omitempty"`
	// Policy is what the scripted webhook of Requires.Chain answers.
	Policy []PolicyRule `json:"policy,omitempty" yaml:"policy,omitempty"`
	// Steps run in order. Each has exactly one action.
	Steps []Step `json:"steps" yaml:"steps"`

	// Manifests are the decoded objects of Fixtures, in order, set by the loader.
	Manifests []map[string]any `json:"manifests,omitempty" yaml:"-"`

	Suffix string `json:"-" yaml:"-" bind:"keep"` // what Bind made the names unique with; empty before
}

// Source is where a behaviour is described.
type Source struct {
	// Document is the short name: KEP-5284, docs/user-impersonation, or kubernetes for what only source code shows.
	Document string `json:"document" yaml:"document"`
	Section  string `json:"section" yaml:"section"` // the heading, or the file and function
}

// Capability is something a target can show or do.
type Capability string

const (
	// Reviews: every access review is recorded, in order (recorder webhook).
	Reviews Capability = "reviews"
	// Audit: the audit event of each request can be read.
	Audit Capability = "audit"
	// Metrics: apiserver_impersonation_* can be read (1.36 and later, gate on).
	Metrics Capability = "metrics"
	// RequestHeader: arbitrary requestors, through request-header client certificates.
	RequestHeader Capability = "requestHeader"
	// Tokens: ServiceAccount tokens, unbound or bound to a pod or node.
	Tokens Capability = "tokens"
	// RBAC: grants can be given as RBAC objects.
	RBAC Capability = "rbac"
	// Aggregation: the harness serves an aggregated API, things of conformance.authzconf.dev/v1, and sees what arrives.
	Aggregation Capability = "aggregation"
	// KubeletNodes: at least two nodes whose kubelets run pods, and the image of the node agent on them.
	KubeletNodes Capability = "nodes"
	// Signing: the keys are at hand that sign the API server's ServiceAccount tokens and the certificates of its clients.
	Signing Capability = "signing"
)

// Capabilities are what a target can show or do. They are recorded with the evidence, so that a verdict can ask them.
type Capabilities []Capability

// Has reports whether a capability is among them.
func (c Capabilities) Has(one Capability) bool { return slices.Contains(c, one) }

// Foreign reports whether the target is observed from outside: nothing is seen there of a request but its answer, and
// ServiceAccounts are substituted for users. Nothing is known of a target without any capability.
func (c Capabilities) Foreign() bool { return len(c) > 0 && !c.Has(RequestHeader) }

// Processes reports whether the target's programs are processes of the harness on its own machine. Only then is the key
// at hand that signs tokens, and only then does nobody else send requests.
func (c Capabilities) Processes() bool { return c.Has(Signing) }

// AllCapabilities returns every capability, in the order they are documented.
func AllCapabilities() []Capability {
	return []Capability{Reviews, Audit, Metrics, RequestHeader, Tokens, RBAC, Aggregation, KubeletNodes, Signing}
}

// Requires selects targets.
type Requires struct {
	// Kubernetes is a range of minor versions, for example ">=1.35" or ">=1.35, <1.37". Empty means every version.
	// It is compared with the effective version: the emulated one where emulation is used.
	Kubernetes string `json:"kubernetes,omitempty" yaml:"kubernetes,omitempty"`
	// Binary is the same of the binary, for behaviour that emulation does not change (messages, metrics).
	Binary string `json:"binary,omitempty" yaml:"binary,omitempty"`
	// Gate is the state of ConstrainedImpersonation. It must be given.
	Gate Gate `json:"gate" yaml:"gate"`
	// FeatureGates are states, on or off, of other feature gates, by their names. A target for which nobody asked for one of
	// them is not meant.
	FeatureGates map[string]Gate `json:"featureGates,omitempty" yaml:"featureGates,omitempty"`
	// Chain is the list of the authorizers of a target, in their order.
	//
	// It is named for what is between the recorder's points, a file of fixtures/chains without ".yaml". Empty is Node and RBAC.
	Chain string `json:"chain,omitempty" yaml:"chain,omitempty"`
	// Capabilities that the target must have. Those that follow from the scenario (requestors, grants) need not be
	// listed. Expectations about reviews, audit or metrics do not make the scenario unrunnable where the target
	// cannot show them unless the capability is listed here: such an expectation is then reported as not judged.
	Capabilities []Capability `json:"capabilities,omitempty" yaml:"capabilities,omitempty"`
}

// Requestor is who sends a request: the identity that was authenticated.
//
// Exactly one of User, ServiceAccount and Anonymous is set.
type Requestor struct {
	// User is an arbitrary user: a proxy names it in request headers, and proves with its certificate that it may.
	User string `json:"user,omitempty" yaml:"user,omitempty"`
	// UID, Groups and Extra go with User. The API server adds system:authenticated.
	UID    string              `json:"uid,omitempty" yaml:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty" yaml:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty" yaml:"extra,omitempty"`
	// Certificate gives User, with Groups, a client certificate of its own in place of the proxy's headers.
	Certificate bool `json:"certificate,omitempty" yaml:"certificate,omitempty"`
	// ServiceAccount is a real ServiceAccount with a token of its own.
	ServiceAccount *ServiceAccount `json:"serviceAccount,omitempty" yaml:"serviceAccount,omitempty"`
	// Anonymous sends no credentials. All scenarios share it, and with it the API server's memory of who impersonated how.
	Anonymous bool `json:"anonymous,omitempty" yaml:"anonymous,omitempty"`
}

// ServiceAccount is a requestor with a TokenRequest token.
type ServiceAccount struct {
	Namespace string `json:"namespace" yaml:"namespace"`
	Name      string `json:"name" yaml:"name"`
	// Pod binds the token to a pod of that name on Node. The pod is created; no kubelet is needed.
	Pod string `json:"pod,omitempty" yaml:"pod,omitempty"`
	// Node is the pod's spec.nodeName; without Pod the token is bound to the Node object itself.
	Node string `json:"node,omitempty" yaml:"node,omitempty"`
	// Secret binds the token to a Secret of that name, which is created. It excludes Pod and Node.
	Secret string `json:"secret,omitempty" yaml:"secret,omitempty"`
	// NodeObject says whether there is a Node of that name, as by default. A pod-bound token has the name even without one.
	NodeObject *bool `json:"nodeObject,omitempty" yaml:"nodeObject,omitempty"`
	// Running says that the pod really runs, on one of Nodes, and that its token is the one that the kubelet projected.
	Running bool `json:"running,omitempty" yaml:"running,omitempty"`
	// Times are from when the token is good (nbf), until when (exp), when it was issued (iat) and from when it is stale
	// (warnafter), as durations from now such as "-2m". The API server's key signs the token again for that.
	Times map[string]string `json:"times,omitempty" yaml:"times,omitempty" bind:"keep"`
}

// tokenLeeway is how far clocks may differ (DefaultLeeway of go-jose, by which claims.go judges times).
const tokenLeeway = time.Minute

// At returns a time of the token from now; zero if the scenario leaves it to the API server.
func (sa *ServiceAccount) At(claim string) time.Duration {
	at, err := time.ParseDuration(sa.Times[claim])
	if err != nil { // Load has refused the scenario
		return 0
	}
	return at
}

// InTime reports whether the token is good now, as far as its times go.
func (sa *ServiceAccount) InTime() bool {
	return sa.At("exp") >= -tokenLeeway && sa.At("nbf") <= tokenLeeway && sa.At("iat") <= tokenLeeway
}

// Username returns the name that the API server gives the requestor.
func (r Requestor) Username() string {
	if r.ServiceAccount != nil {
		return serviceaccount.MakeUsername(r.ServiceAccount.Namespace, r.ServiceAccount.Name)
	}
	if r.Anonymous {
		return user.Anonymous
	}
	return r.User
}

// Grant is a permission that somebody is given, one line of a scenario; RBAC objects are made from it.
//
// Subject may do Verbs on Resources of APIGroups (only Names, if given), or on NonResourceURLs.
type Grant struct {
	// ID lets grant and revoke steps name this grant. If the first step that names it is a grant step, it is not
	// in force before that step; otherwise it is in force from the start.
	ID      string   `json:"id,omitempty" yaml:"id,omitempty" bind:"keep"`
	Subject Subject  `json:"subject" yaml:"subject"`         // who is granted
	Verbs   []string `json:"verbs" yaml:"verbs" bind:"keep"` // matched exactly; "*" is any verb
	// APIGroups are matched exactly; "" is the core group, "*" any.
	APIGroups []string `json:"apiGroups,omitempty" yaml:"apiGroups,omitempty" bind:"keep"`
	// Resources are matched exactly, subresources as "pods/exec"; "*" is any resource and subresource, "*/exec" that
	// subresource of any resource.
	Resources []string `json:"resources,omitempty" yaml:"resources,omitempty" bind:"keep"`
	// Names limits the grant to objects of these names. Empty means all.
	Names []string `json:"resourceNames,omitempty" yaml:"resourceNames,omitempty"`
	// Namespace limits the grant to one namespace. Empty means all of them and cluster scope.
	Namespace string `json:"namespace,omitempty" yaml:"namespace,omitempty"`
	// NonResourceURLs are paths, with "*" at the end for any rest, and exclude APIGroups, Resources, Names and Namespace.
	NonResourceURLs []string `json:"nonResourceURLs,omitempty" yaml:"nonResourceURLs,omitempty"`
}

// Subject is a user (service accounts by their full user name) or a group. Exactly one is set.
type Subject struct {
	User  string `json:"user,omitempty" yaml:"user,omitempty"`
	Group string `json:"group,omitempty" yaml:"group,omitempty"`
}

// Step is one request of a scenario, or a change of grants between two requests.
//
// Exactly one of Request, Kubectl, Wait, Grant, Revoke and Reload is set.
type Step struct {
	// Name is shown in reports; left out, the request is.
	Name string `json:"name,omitempty" yaml:"name,omitempty" bind:"keep"`
	// Request is sent by a requestor; Expect says what must be seen.
	Request *Request `json:"request,omitempty" yaml:"request,omitempty"`
	Expect  *Expect  `json:"expect,omitempty" yaml:"expect,omitempty"`
	// Kubectl is run by a requestor; ExpectClient says what must be seen.
	Kubectl      *Kubectl      `json:"kubectl,omitempty" yaml:"kubectl,omitempty"`
	ExpectClient *ClientExpect `json:"expectClient,omitempty" yaml:"expectClient,omitempty"`
	// Beside sends the request at the same time as that of the step before.
	Beside bool `json:"beside,omitempty" yaml:"beside,omitempty"`
	// Await sends the request again until it is answered with the expected code: for what an API server takes over
	// from others after a while. The last time is the one that is judged.
	Await bool `json:"await,omitempty" yaml:"await,omitempty"`
	// Wait lets time pass since the previous answer, for example "10500ms". Waits of different scenarios overlap.
	Wait Duration `json:"wait,omitzero" yaml:"wait,omitempty"`
	// Grant brings the grant of that ID into force.
	Grant string `json:"grant,omitempty" yaml:"grant,omitempty" bind:"keep"`
	// Revoke takes the grant of that ID away.
	Revoke string `json:"revoke,omitempty" yaml:"revoke,omitempty" bind:"keep"`
	// Reload puts another authorizer chain, a file of fixtures/chains without ".yaml", into the running API server.
	Reload string `json:"reload,omitempty" yaml:"reload,omitempty" bind:"keep"`
}

// Request is one API request, in the words of authorization. The HTTP method and path follow from it.
type Request struct {
	By string `json:"by" yaml:"by" bind:"keep"` // the alias of the requestor
	// With are aliases of other requestors whose credentials the request carries too, each of another kind. Of a user whom a
	// proxy names these are the headers without the proxy's certificate.
	With []string `json:"with,omitempty" yaml:"with,omitempty" bind:"keep"`
	// Impersonate holds the impersonation headers. Left out, none is sent.
	Impersonate *Impersonate `json:"impersonate,omitempty" yaml:"impersonate,omitempty"`
	// Headers are further header lines, sent behind those of Impersonate as they are written. A request that has
	// any is sent by HTTP/1.1, which keeps the case of names.
	Headers []Header `json:"headers,omitempty" yaml:"headers,omitempty"`
	// Verb is get, list, watch, create, update, patch, delete or deletecollection, with Path an HTTP method in lower case.
	Verb string `json:"verb" yaml:"verb" bind:"keep"`
	// APIGroup, Version (left out: v1), Resource, Subresource, Namespace and Name make the path.
	APIGroup    string `json:"apiGroup,omitempty" yaml:"apiGroup,omitempty" bind:"keep"`
	Version     string `json:"version,omitempty" yaml:"version,omitempty" bind:"keep"`
	Resource    string `json:"resource,omitempty" yaml:"resource,omitempty" bind:"keep"`
	Subresource string `json:"subresource,omitempty" yaml:"subresource,omitempty" bind:"keep"`
	Namespace   string `json:"namespace,omitempty" yaml:"namespace,omitempty"`
	Name        string `json:"name,omitempty" yaml:"name,omitempty"`
	// Path is a non-resource path such as /version. It excludes the resource fields.
	Path string `json:"path,omitempty" yaml:"path,omitempty"`
	// FieldSelector and LabelSelector go into the query.
	FieldSelector string `json:"fieldSelector,omitempty" yaml:"fieldSelector,omitempty"`
	LabelSelector string `json:"labelSelector,omitempty" yaml:"labelSelector,omitempty"`
	// Query holds further query parameters, for example dryRun: All.
	Query map[string]string `json:"query,omitempty" yaml:"query,omitempty"`
	Body  map[string]any    `json:"body,omitempty" yaml:"body,omitempty"` // sent as JSON
	// Patch says what kind of patch the body is; left out, a merge patch.
	Patch PatchType `json:"patch,omitempty" yaml:"patch,omitempty"`
	// Operations are the body of a JSON patch.
	Operations []map[string]any `json:"operations,omitempty" yaml:"operations,omitempty"`
	// Upgrade asks for another protocol on the connection, as kubectl exec does. A connection that is upgraded is
	// hung up at once, unless it is an exec's by WebSocket: then the body is what the command writes to stdout.
	Upgrade Upgrade `json:"upgrade,omitempty" yaml:"upgrade,omitempty"`
	// Hold keeps a watch that is let through open until the next step that waits, or the end. It must not end before.
	Hold bool `json:"hold,omitempty" yaml:"hold,omitempty"`
}

// Impersonate is what the impersonation headers carry.
type Impersonate struct {
	// User is Impersonate-User. It may be empty, to show what the API server makes of the other headers alone.
	User string `json:"user,omitempty" yaml:"user,omitempty"`
	UID  string `json:"uid,omitempty" yaml:"uid,omitempty"` // Impersonate-Uid
	// Groups are sent as one Impersonate-Group header each, in order.
	Groups []string `json:"groups,omitempty" yaml:"groups,omitempty"`
	// Extra are Impersonate-Extra-<key> headers; keys are percent-encoded as client-go does, values are sent in order.
	Extra map[string][]string `json:"extra,omitempty" yaml:"extra,omitempty"`
}

// Duration is a time.Duration written as "10s" in YAML and JSON.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// Together returns the steps whose requests are sent at the same time as that of step i, which comes first.
func (s *Scenario) Together(i int) []Step {
	end := i + 1
	for end < len(s.Steps) && s.Steps[end].Beside {
		end++
	}
	return s.Steps[i:end]
}

// Alone reports whether the scenario needs a target for itself: it changes the authorizer chain, or reads shared counters.
func (s *Scenario) Alone() bool {
	return slices.ContainsFunc(s.Steps, func(st Step) bool {
		readsCounters := st.Expect != nil && st.Expect.Counters != nil
		return readsCounters || st.Reload != ""
	})
}

// Waits returns the time that the scenario spends in wait steps.
func (s *Scenario) Waits() time.Duration {
	return seq.Sum(s.Steps, func(st Step) time.Duration { return time.Duration(st.Wait) })
}
