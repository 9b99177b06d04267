package scenarios

import (
	"iter"
	"regexp"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
)

// Kubectl is one run of the real kubectl as a child process, with a kubeconfig of the requestor's. Within a scenario
// all runs of a requestor share a home folder, and with it what kubectl has cached of the API server's discovery.
type Kubectl struct {
	// By is the alias of the requestor. It is a service account, and kubectl authenticates with its token.
	By string `json:"by" yaml:"by" bind:"keep"`
	// Args are the arguments. Values of flags follow "=" (--as=bob, --namespace=shop), so that they can be told from
	// other arguments.
	Args []string `json:"args" yaml:"args"`
	// Version is the minor version of kubectl, such as "1.34". If it is left out, it is the newest one.
	Version string `json:"version,omitempty" yaml:"version,omitempty" bind:"keep"`
}

// ClientExpect states what must be seen of a run of a client: how it ended, what it printed, and every request that it
// sent.
type ClientExpect struct {
	// ExitCode is the exit code of the process. It is required.
	ExitCode *int `json:"exitCode" yaml:"exitCode"`
	// Stdout and Stderr are texts that the output must contain. [] means that there must be no output. If it is left
	// out, it is not judged.
	Stdout []string `json:"stdout,omitzero" yaml:"stdout,omitempty"`
	Stderr []string `json:"stderr,omitzero" yaml:"stderr,omitempty"`
	// Requests are all requests that the client sent, in order. It is required; [] means that there must be none.
	Requests []ClientRequest `json:"requests" yaml:"requests"`
}

// ClientRequest is one request of a client, with what must be seen of it.
type ClientRequest struct {
	Method string `json:"method" yaml:"method" bind:"keep"` // the HTTP method
	Path   string `json:"path" yaml:"path"`                 // the path with its query, as it was sent
	Expect Expect `json:"expect" yaml:"expect"`             // as for the request of a step
}

// Answered returns what is expected of a client whose requests were answered with these codes. It applies
// Expect.Answered to each request. kubectl ends with exit code 1 when a request is refused, and then its output is not
// judged.
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

// flagValues returns all values of a flag, in the order of the arguments. name is the flag as it is typed, such as
// "--as-group".
func (k *Kubectl) flagValues(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, a := range k.Args {
			rest, isLonger := strings.CutPrefix(a, name)
			value, isFlag := strings.CutPrefix(rest, "=")
			isValue := isLonger && isFlag
			if isValue && !yield(value) {
				return
			}
		}
	}
}

// flagValue returns the value of a flag, or "" if it is not given. Of several values the last one counts.
func (k *Kubectl) flagValue(name string) (last string) {
	for value := range k.flagValues(name) {
		last = value
	}
	return last
}

// Impersonate returns what kubectl sends because of the flags --as, --as-group, --as-uid and --as-user-extra, or nil
// without any of them.
func (k *Kubectl) Impersonate() *Impersonate {
	i := &Impersonate{
		User: k.flagValue("--as"), UID: k.flagValue("--as-uid"), Groups: slices.Collect(k.flagValues("--as-group")),
	}
	for e := range k.flagValues("--as-user-extra") {
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

// suffix returns the end of the program's name. It tells the program of a minor version from the newest one.
func (k *Kubectl) suffix() string {
	if k.Version == "" {
		return ""
	}
	return "-" + k.Version
}

// request returns a request that stands for the command in comparisons. Its path is the command without what the other
// fields say.
func (k *Kubectl) request() *Request {
	plain := slices.DeleteFunc(slices.Clone(k.Args), func(a string) bool { return strings.HasPrefix(a, "--as") })
	return &Request{
		By: k.By, Impersonate: k.Impersonate(), Verb: "kubectl",
		Namespace: k.flagValue("--namespace"), Path: strings.Join(plain, " "),
	}
}

// Step returns a request step by which a request of the client is judged.
func (k *Kubectl) Step(r ClientRequest) *Step {
	path, _, _ := strings.Cut(r.Path, "?")
	return &Step{
		Request: &Request{By: k.By, Impersonate: k.Impersonate(), Verb: strings.ToLower(r.Method), Path: path},
		Expect:  &r.Expect,
	}
}

// Sent returns the request of the step, or one that stands for its client command. It returns nil if the step sends
// none.
func (st Step) Sent() *Request {
	if st.Kubectl != nil {
		return st.Kubectl.request()
	}
	return st.Request
}

// outcome returns the outcome of a step. For a client it is that of the first refused request. It is "" if the client
// fails otherwise.
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

// expectedReviews returns all reviews that a step states.
func (st Step) expectedReviews() (all []Review) {
	if st.Expect != nil {
		all = slices.Concat(st.Expect.allReviews()...)
	}
	if st.ExpectClient != nil {
		for _, r := range st.ExpectClient.Requests {
			all = append(all, slices.Concat(r.Expect.allReviews()...)...)
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
	c.failIf(
		k.Version != "" && !kubectlVersion.MatchString(k.Version),
		extend(path, "version"),
		"version is %q (expected a minor, such as 1.34)",
		k.Version,
	)
	for i, a := range k.Args {
		flag, _, hasValue := strings.Cut(a, "=")
		switch {
		case slices.Contains(harnessFlags, flag):
			c.fail(extend(path, "args", i), "%s is given (expected it left out: the harness sets it)", flag)
		case slices.Contains(valueFlags, flag) && !hasValue:
			c.fail(extend(path, "args", i), "%q has its value in the next argument (expected --flag=value)", a)
		}
	}
}

var (
	// valueFlags are the flags whose value must not be in the next argument.
	valueFlags = []string{"-n", "--namespace", "--as", "--as-group", "--as-uid", "--as-user-extra"}
	// harnessFlags are the flags that the harness sets.
	harnessFlags = []string{"--kubeconfig", "--server", "--token", "--cache-dir", "--user", "--context", "--cluster"}
)

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

// KubectlVersions returns the minor versions of kubectl that scenarios run, each once. The newest one is "".
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
