package scenarios

import (
	"regexp"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
)

// Kubectl is one run of the real kubectl, as a child process with a kubeconfig of the requestor's. Within a scenario
// the runs of one requestor share a home folder, and so what kubectl has cached of the API server's discovery.
type Kubectl struct {
	// By is the alias of the requestor, a service account: kubectl authenticates with its token.
	By string `json:"by" yaml:"by" bind:"keep"`
	// Args are the arguments. Values of flags stand behind "=" (--as=bob, --namespace=shop), to be told from others.
	Args []string `json:"args" yaml:"args"`
	// Version is the minor of kubectl, such as "1.34"; left out it is the newest one.
	Version string `json:"version,omitempty" yaml:"version,omitempty" bind:"keep"`
}

// ClientExpect states what must be seen of a run of a client: how it ended, what it printed, and every request it made.
type ClientExpect struct {
	// ExitCode is that of the process. It must be given.
	ExitCode *int `json:"exitCode" yaml:"exitCode"`
	// Stdout and Stderr are texts that the output must contain; [] means that there is none. Left out, it is not judged.
	Stdout []string `json:"stdout,omitzero" yaml:"stdout,omitempty"`
	Stderr []string `json:"stderr,omitzero" yaml:"stderr,omitempty"`
	// Requests are all the requests that the client sent, in order. They must be given; [] means that there were none.
	Requests []ClientRequest `json:"requests" yaml:"requests"`
}

// ClientRequest is one request of a client with what must be seen of it.
type ClientRequest struct {
	Method string `json:"method" yaml:"method" bind:"keep"` // the HTTP method
	Path   string `json:"path" yaml:"path"`                 // the path with its query, as it was sent
	Expect Expect `json:"expect" yaml:"expect"`             // as of a request step
}

// Answered returns what is expected of a client whose requests were answered with these codes: as Expect.Answered of each.
// kubectl ends with exit code 1 when a request is refused, and what it prints then is not judged.
func (e *ClientExpect) Answered(codes []int) *ClientExpect {
	for i, r := range e.Requests {
		if i < len(codes) && r.Expect.Answered(codes[i]).Outcome != r.Expect.Outcome {
			refused := *e
			refused.ExitCode, refused.Stdout, refused.Stderr = new(1), nil, nil
			return &refused
		}
	}
	return e
}

// flags returns the values of a flag that may be given several times.
func (k *Kubectl) flags(name string) (values []string) {
	for _, a := range k.Args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			values = append(values, v)
		}
	}
	return values
}

// flag returns the value of a flag, "" if it is not given.
func (k *Kubectl) flag(name string) string {
	values := append([]string{""}, k.flags(name)...)
	return values[len(values)-1] // the last counts
}

// Impersonate returns what the flags --as, --as-group, --as-uid and --as-user-extra make kubectl send; nil without any.
func (k *Kubectl) Impersonate() *Impersonate {
	i := &Impersonate{User: k.flag("as"), UID: k.flag("as-uid"), Groups: k.flags("as-group")}
	for _, e := range k.flags("as-user-extra") {
		key, value, _ := strings.Cut(e, "=")
		if i.Extra == nil {
			i.Extra = map[string][]string{}
		}
		i.Extra[key] = append(i.Extra[key], value)
	}
	isEmpty := i.User == "" && i.UID == "" && i.Groups == nil && i.Extra == nil
	if isEmpty {
		return nil
	}
	return i
}

// Line returns the command as it would be typed.
func (k *Kubectl) Line() string { return "kubectl" + k.suffix() + " " + strings.Join(k.Args, " ") }

// suffix returns what tells the program of a minor from the newest one.
func (k *Kubectl) suffix() string {
	if k.Version == "" {
		return ""
	}
	return "-" + k.Version
}

// request returns what stands for the command in comparisons: its path is the command without what the other fields say.
func (k *Kubectl) request() *Request {
	plain := slices.DeleteFunc(slices.Clone(k.Args), func(a string) bool { return strings.HasPrefix(a, "--as") })
	return &Request{
		By: k.By, Impersonate: k.Impersonate(), Verb: "kubectl",
		Namespace: k.flag("namespace"), Path: strings.Join(plain, " "),
	}
}

// Step returns the request step that a client's request is judged as.
func (k *Kubectl) Step(r ClientRequest) *Step {
	path, _, _ := strings.Cut(r.Path, "?")
	return &Step{
		Request: &Request{By: k.By, Impersonate: k.Impersonate(), Verb: strings.ToLower(r.Method), Path: path},
		Expect:  &r.Expect,
	}
}

// Sent returns the step's request, or what stands for that of a client; nil if the step sends none.
func (st Step) Sent() *Request {
	if st.Kubectl != nil {
		return st.Kubectl.request()
	}
	return st.Request
}

// outcome returns what a step ends in: for a client, the first request that is refused; "" if it fails otherwise.
func (st Step) outcome() Outcome {
	switch {
	case st.Expect != nil:
		return st.Expect.Outcome
	case st.ExpectClient == nil:
		return ""
	}
	for _, r := range st.ExpectClient.Requests {
		if r.Expect.Outcome != Allowed {
			return r.Expect.Outcome
		}
	}
	if code := st.ExpectClient.ExitCode; code != nil && *code == 0 {
		return Allowed
	}
	return ""
}

// expectedReviews returns all reviews that are stated of a step.
func (st Step) expectedReviews() (all []Review) {
	if st.Expect != nil {
		all = st.Expect.allReviews()
	}
	if st.ExpectClient != nil {
		for _, r := range st.ExpectClient.Requests {
			all = append(all, r.Expect.allReviews()...)
		}
	}
	return all
}

func (c *checker) checkKubectl(k *Kubectl, path []any) {
	c.require(extend(path, "by"), k.By == "", "the alias of a requestor")
	r, known := c.s.Requestors[k.By]
	switch {
	case k.By == "" || c.src.failedAt(at("requestors")):
	case !known:
		c.fail(extend(path, "by"), "by is %q, which is not a requestor (expected one of their aliases)", k.By)
	case r.ServiceAccount == nil:
		c.fail(extend(path, "by"), "requestor %q is not a service account (expected one: kubectl authenticates with a token)", k.By)
	}
	c.require(extend(path, "args"), len(k.Args) == 0, "kubectl's arguments")
	c.failIf(k.Version != "" && !kubectlVersion.MatchString(k.Version), extend(path, "version"), "version is %q (expected a minor, such as 1.34)", k.Version)
	for i, a := range k.Args {
		if slices.Contains([]string{"-n", "--namespace", "--as", "--as-group", "--as-uid", "--as-user-extra"}, a) {
			c.fail(extend(path, "args", i), "%q has its value in the next argument (expected --flag=value)", a)
		}
		for _, own := range []string{"--kubeconfig", "--server", "--token", "--cache-dir", "--user", "--context", "--cluster"} {
			c.failIf(a == own || strings.HasPrefix(a, own+"="), extend(path, "args", i),
				"%s is given (expected it left out: the harness sets it)", own)
		}
	}
}

func (c *checker) checkClient(e *ClientExpect, path []any) {
	c.require(extend(path, "exitCode"), e.ExitCode == nil, "the exit code")
	c.require(extend(path, "requests"), e.Requests == nil, "the requests that are sent, [] for none")
	for i, r := range e.Requests {
		p := extend(path, "requests", i)
		c.require(extend(p, "method"), r.Method == "", "an HTTP method")
		checkEnum(c, extend(p, "method"), r.Method, "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
		c.failIf(!strings.HasPrefix(r.Path, "/"), extend(p, "path"), "path is %q (expected one that begins with /)", r.Path)
		c.checkExpect(&r.Expect, extend(p, "expect"))
	}
}

// kubectlVersion matches a minor version.
var kubectlVersion = regexp.MustCompile(`^1\.[0-9]+$`)

// KubectlVersions returns the minors of kubectl that scenarios run, the empty one for the newest, each once.
func KubectlVersions(list []*Scenario) (minors []string) {
	for _, s := range list {
		for _, st := range s.Steps {
			if st.Kubectl != nil {
				minors = seq.AppendMissing(minors, st.Kubectl.Version)
			}
		}
	}
	return minors
}

// RunsKubectl reports whether a step of the scenario runs kubectl.
func (s *Scenario) RunsKubectl() bool {
	return slices.ContainsFunc(s.Steps, func(st Step) bool { return st.Kubectl != nil })
}
