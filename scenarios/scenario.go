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
	// Core is for what the documents promise about the decision itself.
	Core Level = "core"
	// Extended is for what surrounds a decision: the order of access reviews, audit fields, metrics, error texts.
	Extended Level = "extended"
	// Divergence is the level of a scenario about a place where a document and the servers differ. It is judged against
	// the servers, and shows the text beside it.
	//
	// The text is in Documented.
	Divergence Level = "divergence"
)

// Scenario is one file with one behaviour: who asks for what, who was granted what, and what must happen. Its path is
// its ID.
//
// The zero value is not usable: scenarios come from Load, which checks the format.
type Scenario struct {
	// ID is the path of the file below the scenarios folder without its extension. The loader sets it.
	ID   string `json:"-" yaml:"-" bind:"keep"`
	File string `json:"-" yaml:"-" bind:"keep"` // the path the scenario was read from, for error messages
	// Digest is the SHA-256, in hexadecimal, of the bytes of the file and of its fixtures. Evidence contains it, so
	// that a verdict cannot be computed again with another text than the one that was run.
	Digest string `json:"-" yaml:"-" bind:"keep"`

	// Description says in one or two sentences what is shown and why it matters.
	Description string `json:"description" yaml:"description" bind:"keep"`
	// Source is the document and section from which the behaviour comes.
	Source Source `json:"source" yaml:"source" bind:"keep"`
	Level  Level  `json:"level" yaml:"level"` // the strength of the claim
	// Documented is what the document says, in its own words, if Level is Divergence. It is shown beside the result.
	Documented string `json:"documented,omitempty" yaml:"documented,omitempty" bind:"keep"`
	// Requires selects the targets on which this scenario can run.
	Requires Requires `json:"requires" yaml:"requires" bind:"keep"`
	// Twin is the allowed scenario that differs from a denied one in a single permission or field, so that nothing else
	// can be the cause of the denial.
	//
	// It is named by its ID. A scenario with a denied request must have one.
	Twin string `json:"twin,omitempty" yaml:"twin,omitempty" bind:"keep"`
	// Setup is a name that this scenario shares with others. They have the same requestors, objects and grants, and
	// their requests are for servers of different versions or gates. An upgrade path creates a setup once, with one
	// name, and on each stage replays the scenario of the setup that is for that stage.
	Setup string `json:"setup,omitempty" yaml:"setup,omitempty" bind:"keep"`

	// Names are further names to make unique (see Bind). The names of requestors, objects and namespaces, and
	// impersonated nodes, service accounts and plain users, are found without being listed.
	Names []string `json:"names,omitempty" yaml:"names,omitempty"`
	// Nodes are names that stand for real nodes with kubelets, a different node each. BindOn replaces them by the real
	// names.
	Nodes []string `json:"nodes,omitempty" yaml:"nodes,omitempty"`
	// Requestors are those who authenticate, by the aliases that requests use. If it is left out, it is the user
	// impersonator.
	Requestors map[string]Requestor `json:"requestors" yaml:"requestors"`
	// Fixtures are manifests that are applied before the first step, by their path in the fixtures folder, such as
	// "docs-user-impersonation/user-identity.yaml".
	Fixtures []string `json:"fixtures,omitempty" yaml:"fixtures,omitempty" bind:"keep"`
	// Objects are further Kubernetes objects that are created before the first step. Namespaces, and the service
	// accounts, pods and nodes of requestors, are created without being listed.
	Objects []map[string]any `json:"objects,omitempty" yaml:"objects,omitempty"`
	// Grants are neutral permissions. They are rendered as RBAC on a cluster, or exported as a policy for the vendor of
	// an authorizer.
	Grants []Grant `json:"grants,omitempty" yaml:"grants,omitempty"`
	// Policy is what the scripted webhook of Requires.Chain answers.
	Policy []PolicyRule `json:"policy,omitempty" yaml:"policy,omitempty"`
	// Steps run in order. Each has exactly one action.
	Steps []Step `json:"steps" yaml:"steps"`

	// Manifests are the decoded objects of Fixtures, in order. The loader sets them.
	Manifests []map[string]any `json:"manifests,omitempty" yaml:"-"`

	Suffix string `json:"-" yaml:"-" bind:"keep"` // the end with which Bind made the names unique; empty before
}

// Source is where a behaviour is described.
type Source struct {
	// Document is a short name: KEP-5284, docs/user-impersonation, or kubernetes for what only source code shows.
	Document string `json:"document" yaml:"document"`
	Section  string `json:"section" yaml:"section"` // the heading, or the file and function
}

// Capability is something that a target can show or do.
type Capability string

const (
	// Reviews means that every access review is recorded in order (recorder webhook).
	Reviews Capability = "reviews"
	// Audit means that the audit event of each request can be read.
	Audit Capability = "audit"
	// Metrics means that apiserver_impersonation_* can be read (1.36 and later, gate on).
	Metrics Capability = "metrics"
	// RequestHeader means that there can be arbitrary requestors, through request-header client certificates.
	RequestHeader Capability = "requestHeader"
	// Tokens means that there are ServiceAccount tokens, which can be bound to a pod or node.
	Tokens Capability = "tokens"
	// RBAC means that grants can be given as RBAC objects.
	RBAC Capability = "rbac"
	// Aggregation means that the harness serves an aggregated API with things of conformance.authzconf.dev/v1, and sees
	// what arrives.
	Aggregation Capability = "aggregation"
	// KubeletNodes means that there are at least two nodes whose kubelets run pods, and that they have the image of the
	// node agent.
	KubeletNodes Capability = "nodes"
	// Signing means that the harness has the keys that sign the API server's ServiceAccount tokens and the certificates
	// of its clients.
	Signing Capability = "signing"
)

// Capabilities are what a target can show or do. They are recorded with the evidence, so that a verdict can depend on
// them.
type Capabilities []Capability

// Has reports whether a capability is among them.
func (c Capabilities) Has(one Capability) bool { return slices.Contains(c, one) }

// Foreign reports whether the target is observed from outside. Then only the answer to a request is seen, and
// ServiceAccounts are substituted for users. Nothing is known of a target without capabilities, so it is not foreign.
func (c Capabilities) Foreign() bool { return len(c) > 0 && !c.Has(RequestHeader) }

// Processes reports whether the target's programs are processes of the harness on its own machine. Only then does the
// harness have the key that signs tokens, and only then does nobody else send requests.
func (c Capabilities) Processes() bool { return c.Has(Signing) }

// AllCapabilities returns every capability, in the order in which they are documented.
func AllCapabilities() []Capability {
	return []Capability{Reviews, Audit, Metrics, RequestHeader, Tokens, RBAC, Aggregation, KubeletNodes, Signing}
}

// Requires selects targets.
type Requires struct {
	// Kubernetes is a range of minor versions, for example ">=1.35" or ">=1.35, <1.37". If it is empty, every version
	// is in it. It is compared with the effective version, which is the emulated one if emulation is used.
	Kubernetes string `json:"kubernetes,omitempty" yaml:"kubernetes,omitempty"`
	// Binary is a range of minor versions for the binary itself. It is for behaviour that emulation does not change
	// (messages, metrics).
	Binary string `json:"binary,omitempty" yaml:"binary,omitempty"`
	// Gate is the state of ConstrainedImpersonation. It is required.
	Gate Gate `json:"gate" yaml:"gate"`
	// FeatureGates are states, on or off, of other feature gates, by their names. A target matches only if its state of
	// each of these gates was requested.
	FeatureGates map[string]Gate `json:"featureGates,omitempty" yaml:"featureGates,omitempty"`
	// Chain is the list of the authorizers of a target, in their order.
	//
	// It is named for what is between the recorder's points, a file of fixtures/chains without ".yaml". Empty is Node
	// and RBAC.
	Chain string `json:"chain,omitempty" yaml:"chain,omitempty"`
	// Capabilities are those that the target must have. Those that follow from the scenario (requestors, grants) need
	// not be listed. A scenario with expectations about reviews, audit or metrics can also run where the target cannot
	// show these, unless the capability is listed here. Such an expectation is then reported as not judged.
	Capabilities []Capability `json:"capabilities,omitempty" yaml:"capabilities,omitempty"`
}

// Requestor is who sends a request: the identity that was authenticated.
//
// Exactly one of User, ServiceAccount and Anonymous is set.
type Requestor struct {
	// User is an arbitrary user. A proxy names it in request headers, and its certificate proves that it may do so.
	User string `json:"user,omitempty" yaml:"user,omitempty"`
	// UID, Groups and Extra belong to User. The API server adds system:authenticated.
	UID    string              `json:"uid,omitempty" yaml:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty" yaml:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty" yaml:"extra,omitempty"`
	// Certificate means that User, with Groups, has a client certificate instead of the headers of a proxy.
	Certificate bool `json:"certificate,omitempty" yaml:"certificate,omitempty"`
	// ServiceAccount is a real ServiceAccount with a token of its own.
	ServiceAccount *ServiceAccount `json:"serviceAccount,omitempty" yaml:"serviceAccount,omitempty"`
	// Anonymous sends no credentials. All scenarios share this requestor, and with it the API server's cache of its
	// impersonations.
	Anonymous bool `json:"anonymous,omitempty" yaml:"anonymous,omitempty"`
}

// ServiceAccount is a requestor with a token from a TokenRequest.
type ServiceAccount struct {
	Namespace string `json:"namespace" yaml:"namespace"`
	Name      string `json:"name" yaml:"name"`
	// Pod is the name of a pod on Node to which the token is bound. The pod is created, and no kubelet is needed.
	Pod string `json:"pod,omitempty" yaml:"pod,omitempty"`
	// Node is the spec.nodeName of the pod. Without Pod, the token is bound to the Node object itself.
	Node string `json:"node,omitempty" yaml:"node,omitempty"`
	// Secret is the name of a Secret to which the token is bound, and which is created. It excludes Pod and Node.
	Secret string `json:"secret,omitempty" yaml:"secret,omitempty"`
	// NodeObject reports whether a Node with that name exists. By default it does. A token that is bound to a pod
	// contains the name even without it.
	NodeObject *bool `json:"nodeObject,omitempty" yaml:"nodeObject,omitempty"`
	// Running means that the pod really runs on one of Nodes, and that its token is the one that the kubelet projected.
	Running bool `json:"running,omitempty" yaml:"running,omitempty"`
	// Times are the times in the token: from when on it is valid (nbf), until when (exp), when it was issued (iat), and
	// from when on it is stale (warnafter). They are durations from now, such as "-2m". For this the token is signed
	// again with the API server's key.
	Times map[string]string `json:"times,omitempty" yaml:"times,omitempty" bind:"keep"`
}

// tokenLeeway is by how much clocks may differ (DefaultLeeway of go-jose, by which claims.go judges times).
const tokenLeeway = time.Minute

// At returns one of the token's times as a duration from now, or zero if the scenario leaves it to the API server.
func (sa *ServiceAccount) At(claim string) time.Duration {
	at, err := time.ParseDuration(sa.Times[claim])
	if err != nil { // Load refuses such a scenario
		return 0
	}
	return at
}

// InTime reports whether the token's times make it valid now.
func (sa *ServiceAccount) InTime() bool {
	return sa.At("exp") >= -tokenLeeway && sa.At("nbf") <= tokenLeeway && sa.At("iat") <= tokenLeeway
}

// Username returns the name of the requestor at the API server.
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
	// ID is the name of the grant in grant and revoke steps. If the first step that names it is a grant step, the grant
	// is not in force before that step; otherwise it is in force from the start.
	ID      string   `json:"id,omitempty" yaml:"id,omitempty" bind:"keep"`
	Subject Subject  `json:"subject" yaml:"subject"`         // who is granted
	Verbs   []string `json:"verbs" yaml:"verbs" bind:"keep"` // compared exactly; "*" is any verb
	// APIGroups are compared exactly. "" is the core group, and "*" is any group.
	APIGroups []string `json:"apiGroups,omitempty" yaml:"apiGroups,omitempty" bind:"keep"`
	// Resources are compared exactly. A subresource is written "pods/exec". "*" is any resource and subresource, and
	// "*/exec" is that subresource of any resource.
	Resources []string `json:"resources,omitempty" yaml:"resources,omitempty" bind:"keep"`
	// Names limits the grant to objects with these names. If it is empty, there is no such limit.
	Names []string `json:"resourceNames,omitempty" yaml:"resourceNames,omitempty"`
	// Namespace limits the grant to one namespace. If it is empty, the grant is for all namespaces and for cluster
	// scope.
	Namespace string `json:"namespace,omitempty" yaml:"namespace,omitempty"`
	// NonResourceURLs are paths, in which "*" at the end stands for any rest. It excludes APIGroups, Resources, Names
	// and Namespace.
	NonResourceURLs []string `json:"nonResourceURLs,omitempty" yaml:"nonResourceURLs,omitempty"`
}

// Subject is a user (a service account by its full user name) or a group. Exactly one is set.
type Subject struct {
	User  string `json:"user,omitempty" yaml:"user,omitempty"`
	Group string `json:"group,omitempty" yaml:"group,omitempty"`
}

// Step is one request of a scenario, or a change of grants between two requests.
//
// Exactly one of Request, Kubectl, Wait, Grant, Revoke and Reload is set.
type Step struct {
	// Name is shown in reports. If it is left out, the request is shown.
	Name string `json:"name,omitempty" yaml:"name,omitempty" bind:"keep"`
	// Request is sent by a requestor. Expect says what must be seen.
	Request *Request `json:"request,omitempty" yaml:"request,omitempty"`
	Expect  *Expect  `json:"expect,omitempty" yaml:"expect,omitempty"`
	// Kubectl is run by a requestor. ExpectClient says what must be seen.
	Kubectl      *Kubectl      `json:"kubectl,omitempty" yaml:"kubectl,omitempty"`
	ExpectClient *ClientExpect `json:"expectClient,omitempty" yaml:"expectClient,omitempty"`
	// Beside means that the request is sent at the same time as that of the previous step.
	Beside bool `json:"beside,omitempty" yaml:"beside,omitempty"`
	// Await means that the request is repeated until it is answered with the expected code. It is for what an API
	// server learns from others after a while. Only the last request is judged.
	Await bool `json:"await,omitempty" yaml:"await,omitempty"`
	// Wait is a pause after the previous answer, for example "10500ms". The pauses of different scenarios overlap.
	Wait Duration `json:"wait,omitzero" yaml:"wait,omitempty"`
	// Grant is the ID of a grant that comes into force.
	Grant string `json:"grant,omitempty" yaml:"grant,omitempty" bind:"keep"`
	// Revoke is the ID of a grant that is taken away.
	Revoke string `json:"revoke,omitempty" yaml:"revoke,omitempty" bind:"keep"`
	// Reload is the name of another authorizer chain for the running API server, a file of fixtures/chains without
	// ".yaml".
	Reload string `json:"reload,omitempty" yaml:"reload,omitempty" bind:"keep"`
}

// Request is one API request, in the words of authorization. The HTTP method and path follow from it.
type Request struct {
	By string `json:"by" yaml:"by" bind:"keep"` // the alias of the requestor
	// With are the aliases of other requestors whose credentials the request carries too, each of another kind. For a
	// user whom a proxy names, these are the headers without the proxy's certificate.
	With []string `json:"with,omitempty" yaml:"with,omitempty" bind:"keep"`
	// Impersonate has the impersonation headers. If it is left out, none are sent.
	Impersonate *Impersonate `json:"impersonate,omitempty" yaml:"impersonate,omitempty"`
	// Headers are further header lines, which are sent after those of Impersonate as they are written. A request with
	// such lines is sent over HTTP/1.1, which keeps the case of names.
	Headers []Header `json:"headers,omitempty" yaml:"headers,omitempty"`
	// Verb is get, list, watch, create, update, patch, delete or deletecollection. With Path it is an HTTP method in
	// lower case.
	Verb string `json:"verb" yaml:"verb" bind:"keep"`
	// APIGroup, Version (v1 if it is left out), Resource, Subresource, Namespace and Name make up the path.
	APIGroup    string `json:"apiGroup,omitempty" yaml:"apiGroup,omitempty" bind:"keep"`
	Version     string `json:"version,omitempty" yaml:"version,omitempty" bind:"keep"`
	Resource    string `json:"resource,omitempty" yaml:"resource,omitempty" bind:"keep"`
	Subresource string `json:"subresource,omitempty" yaml:"subresource,omitempty" bind:"keep"`
	Namespace   string `json:"namespace,omitempty" yaml:"namespace,omitempty"`
	Name        string `json:"name,omitempty" yaml:"name,omitempty"`
	// Path is a non-resource path such as /version. It excludes the resource fields.
	Path string `json:"path,omitempty" yaml:"path,omitempty"`
	// FieldSelector and LabelSelector are parts of the query.
	FieldSelector string `json:"fieldSelector,omitempty" yaml:"fieldSelector,omitempty"`
	LabelSelector string `json:"labelSelector,omitempty" yaml:"labelSelector,omitempty"`
	// Query has further query parameters, for example dryRun: All.
	Query map[string]string `json:"query,omitempty" yaml:"query,omitempty"`
	Body  map[string]any    `json:"body,omitempty" yaml:"body,omitempty"` // sent as JSON
	// Patch says what kind of patch the body is. If it is left out, it is a merge patch.
	Patch PatchType `json:"patch,omitempty" yaml:"patch,omitempty"`
	// Operations are the body of a JSON patch.
	Operations []map[string]any `json:"operations,omitempty" yaml:"operations,omitempty"`
	// Upgrade asks for another protocol on the connection, as kubectl exec does. An upgraded connection is closed at
	// once, unless it is that of an exec over WebSocket: then the body is what the command writes to stdout.
	Upgrade Upgrade `json:"upgrade,omitempty" yaml:"upgrade,omitempty"`
	// Hold keeps an allowed watch open until the next step that waits, or until the end. The watch must not end before.
	Hold bool `json:"hold,omitempty" yaml:"hold,omitempty"`
}

// Impersonate is the content of the impersonation headers.
type Impersonate struct {
	// User is Impersonate-User. It may be empty, to show what the API server does with only the other headers.
	User string `json:"user,omitempty" yaml:"user,omitempty"`
	UID  string `json:"uid,omitempty" yaml:"uid,omitempty"` // Impersonate-Uid
	// Groups are sent in order, each in an Impersonate-Group header of its own.
	Groups []string `json:"groups,omitempty" yaml:"groups,omitempty"`
	// Extra are Impersonate-Extra-<key> headers. Keys are percent-encoded as by client-go, and values are sent in
	// order.
	Extra map[string][]string `json:"extra,omitempty" yaml:"extra,omitempty"`
}

// Duration is a time.Duration that is written as "10s" in YAML and JSON.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// ConcurrentSteps returns the steps whose requests are sent at the same time. The first of them is step i.
func (s *Scenario) ConcurrentSteps(i int) []Step {
	end := i + 1
	for end < len(s.Steps) && s.Steps[end].Beside {
		end++
	}
	return s.Steps[i:end]
}

// Alone reports whether the scenario needs a target of its own, because it changes the authorizer chain or reads shared
// counters.
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
