package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwait "k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// Live are the names of the ready nodes that a kubelet speaks for, workers first. Scenarios make Nodes without one.
func Live(ctx context.Context, client kubernetes.Interface) ([]string, error) {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var workers, others []string
	for _, n := range list.Items {
		_, controlPlane := n.Labels[controlPlaneLabel]
		switch {
		case n.Status.NodeInfo.KubeletVersion == "" || !ready(n):
		case controlPlane:
			others = append(others, n.Name)
		default:
			workers = append(workers, n.Name)
		}
	}
	slices.Sort(workers)
	slices.Sort(others)
	return slices.Concat(workers, others), nil
}

func ready(n corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Lines are what the agent on a node has written so far.
func (a *Agents) Lines(ctx context.Context, node string) ([]Attempt, error) {
	pod, err := a.pod(ctx, node)
	if err != nil {
		return nil, err
	}
	raw, err := a.typed.CoreV1().Pods(a.Name).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("the log of pod %s: %w", pod.Name, err)
	}
	return parse(raw)
}

func parse(raw []byte) (all []Attempt, _ error) {
	for text := range bytes.Lines(raw) {
		if !bytes.HasSuffix(text, []byte("\n")) {
			break
		}
		var l Attempt
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("an agent wrote %.100q: %w", text, err)
		}
		all = append(all, l)
	}
	return all, nil
}

// rounds waits until the agent on a node has tried everything after a time, and returns what it wrote since.
func (a *Agents) rounds(ctx context.Context, node string, after time.Time) (since []Attempt, err error) {
	want := 2 * len(a.Nodes)
	err = apiwait.PollUntilContextTimeout(ctx, poll, timeout, true, func(ctx context.Context) (bool, error) {
		lines, err := a.Lines(ctx, node)
		if err != nil {
			return false, err
		}
		since = slices.DeleteFunc(lines, func(l Attempt) bool { return l.Time.Before(after) })
		return len(since) >= want, nil
	})
	if err != nil {
		return nil, fmt.Errorf("the agent on %s has written %d lines (expected %d): %w", node, len(since), want, err)
	}
	return since, nil
}

// holder uses a token of an agent from outside, as whoever has stolen it.
type holder struct {
	client kubernetes.Interface
	node   string
}

func (a *Agents) holder(token, node string) (*holder, error) {
	config := rest.CopyConfig(a.cluster.Anonymous())
	config.BearerToken = token
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + node}
	client, err := kubernetes.NewForConfig(config)
	return &holder{client, node}, err
}

func (h *holder) list(ctx context.Context) (int, error) {
	_, err := h.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + h.node, ResourceVersion: "0"})
	if err == nil {
		return 200, nil
	}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return int(status.Status().Code), nil
	}
	return 0, err
}

// until asks again and again until the answer is the wanted one, and writes down every answer.
func (h *holder) until(ctx context.Context, code int, s *StolenToken) error {
	last := 0
	err := apiwait.PollUntilContextTimeout(ctx, poll, timeout, true, func(ctx context.Context) (done bool, err error) {
		if last, err = h.list(ctx); err == nil {
			s.Answers = append(s.Answers, TimedCode{time.Now(), last})
		}
		return last == code, err
	})
	if err != nil {
		return fmt.Errorf("the token still gives %d (expected %d): %w", last, code, err)
	}
	return nil
}

// Attempt is one attempt of the node agent, a line of JSON on its standard output.
type Attempt struct {
	Time time.Time `json:"time"`
	Node string    `json:"node"` // where the agent runs, As the user that it wants to be
	As   string    `json:"as"`
	// Deputy says that it is one who acts for users, and Target the kind of user.
	Deputy bool `json:"deputy,omitempty"`
	// Verb, Resource and Target are the request: pods of the node Target, or the node itself.
	Verb     string `json:"verb"`
	Resource string `json:"resource"`
	Target   string `json:"target"`
	Code     int    `json:"code"`              // the HTTP status, 0 if there was no answer
	Message  string `json:"message,omitempty"` // the text of a refusal or error
}

// judgeLines compares what an agent wrote with what it must be allowed: everything as its own node, nothing as another.
func judgeLines(node string, nodes []string, lines []Attempt) []Check {
	var checks []Check
	tried := map[string]bool{}
	for _, l := range lines {
		want := 200
		if l.Target != node {
			want = 403
		}
		c := Check{
			What: fmt.Sprintf("the agent on %s, %s %s as node %s", node, l.Verb, l.Resource, l.Target),
			Want: strconv.Itoa(want),
			Got:  strconv.Itoa(l.Code),
		}
		tried[l.Verb+" "+l.Target] = true
		if l.Node != node {
			c.Want, c.Got = "written by "+node, "written by "+l.Node
		}
		checks = seq.AppendMissing(checks, c) // each once, however often it was tried
	}
	var left []string
	for _, target := range nodes {
		for _, verb := range []string{"list", "get"} {
			if !tried[verb+" "+target] {
				left = append(left, verb+" as node "+target)
			}
		}
	}
	return append(checks, Check{What: "what the agent on " + node + " did not try", Want: scenarios.List(nil), Got: scenarios.List(left)})
}

// judgeEvents compares the audit events of the agents' account with the lines: each line has an event, which says who
// it was from and by which constraint, and no other event says that somebody was impersonated who must not be.
func judgeEvents(lines []Attempt, events []auditv1.Event) []Check {
	var checks []Check
	for _, l := range lines {
		what := fmt.Sprintf("audit of the agent on %s, %s %s as node %s", l.Node, l.Verb, l.Resource, l.Target)
		c := Check{What: what, Want: "200, " + l.As + ", by impersonate:associated-node", Got: "no event"}
		if l.Target != l.Node {
			c.Want = "403, nobody, by no constraint"
		}
		if i := slices.IndexFunc(events, func(e auditv1.Event) bool { return matches(l, e) }); i >= 0 {
			c.Got = describeEvent(events[i])
		}
		checks = seq.AppendMissing(checks, c)
	}
	other := Check{What: "audit of the agents, other impersonations", Want: "none", Got: "none"}
	for _, e := range events {
		if u := e.ImpersonatedUser; u != nil && !slices.ContainsFunc(e.User.Extra[serviceaccount.NodeNameKey], func(node string) bool {
			return u.Username == "system:node:"+node && e.AuthenticationMetadata != nil &&
				e.AuthenticationMetadata.ImpersonationConstraint == "impersonate:associated-node"
		}) {
			other.Got = describeEvent(e)
		}
	}
	return append(checks, other)
}

// lineDelay is how long after an event its line may be written.
const lineDelay = 10 * time.Second

// matches reports whether an event is that of a line: the same node, verb, resource and user, ended before it was written.
func matches(l Attempt, e auditv1.Event) bool {
	sameRequest := e.Verb == l.Verb && e.ObjectRef != nil && e.ObjectRef.Resource == l.Resource
	if !sameRequest || !slices.Equal(e.User.Extra[serviceaccount.NodeNameKey], []string{l.Node}) {
		return false
	}
	if e.ResponseStatus == nil || e.StageTimestamp.After(l.Time) || l.Time.Sub(e.StageTimestamp.Time) > lineDelay {
		return false
	}
	// A refused impersonation leaves no impersonatedUser: of these the code tells.
	if e.ImpersonatedUser == nil {
		return l.Target != l.Node && int(e.ResponseStatus.Code) == l.Code
	}
	return e.ImpersonatedUser.Username == l.As
}

func describeEvent(e auditv1.Event) string {
	who, constraint, code := "nobody", "no constraint", int32(0)
	if e.ResponseStatus != nil {
		code = e.ResponseStatus.Code
	}
	if e.ImpersonatedUser != nil {
		who = e.ImpersonatedUser.Username
	}
	if m := e.AuthenticationMetadata; m != nil && m.ImpersonationConstraint != "" {
		constraint = m.ImpersonationConstraint
	}
	return fmt.Sprintf("%d, %s, by %s", code, who, constraint)
}
