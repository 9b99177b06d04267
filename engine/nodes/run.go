package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwait "k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s"
	"sigs.k8s.io/e2e-framework/klient/wait"
	"sigs.k8s.io/e2e-framework/klient/wait/conditions"

	"github.com/authzconf/authzconf/scenarios"
)

const (
	// tokenTTL is how long the API server does not look again at a valid token, slack what an answer and a poll take.
	tokenTTL = 10 * time.Second
	slack    = 2 * time.Second
)

// AgentsEvidence is what was seen of the agents: everything that is said of them follows from it.
type AgentsEvidence struct {
	Nodes []string `json:"nodes"` // those of the cluster, workers first
	// Work is what the agents wrote at work, by their nodes, and Events are the audit events of their account.
	Work   map[string][]Attempt `json:"work"`
	Events []auditv1.Event      `json:"events"`
	// Pod and Node are what a token gave after its pod, and its pod's Node, were deleted; After is of the agent's next pod.
	Pod   *StolenToken `json:"pod,omitempty"`
	After []Attempt    `json:"after,omitempty"`
	Node  *StolenToken `json:"node,omitempty"`
}

// StolenToken is what a token gave after something was deleted.
type StolenToken struct {
	Deleted time.Time   `json:"deleted"`
	Answers []TimedCode `json:"answers"`
}

// TimedCode is the code of an answer, and when it came.
type TimedCode struct {
	At   time.Time `json:"at"`
	Code int       `json:"code"`
}

// Suffix is what makes the agents' names on a cell unique.
func Suffix(seed int64, cell string) string { return scenarios.Suffix(seed, cell, "agents") }

// Observation is what was seen of the agents, and why that was not everything.
type Observation struct {
	Seen AgentsEvidence `json:"seen"`
	// Problem says why something could not be looked at. It is empty if everything was.
	Problem string `json:"problem,omitempty"`
}

// Run deploys the agents, looks at what they are allowed, and deletes a pod and a node under them.
func Run(ctx context.Context, c Cluster, suffix string) *Observation {
	o := &Observation{Seen: AgentsEvidence{Work: map[string][]Attempt{}}}
	if err := o.Seen.run(ctx, c, suffix); err != nil {
		o.Problem = err.Error()
	}
	return o
}

func (s *AgentsEvidence) run(ctx context.Context, c Cluster, suffix string) (err error) {
	a, err := Deploy(ctx, c, suffix)
	if err != nil {
		return fmt.Errorf("deploying the agents: %w", err)
	}
	defer func() { err = errors.Join(err, a.Remove(context.WithoutCancel(ctx))) }()
	s.Nodes = a.Nodes
	for _, step := range []struct {
		what string
		do   func(context.Context, *AgentsEvidence) error
	}{{"at work", a.atWork}, {"deleting a pod", a.deletePod}, {"deleting a node", a.deleteNode}} {
		if err := step.do(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// Part is a part of what the agents show.
type Part string

// The parts.
const (
	// PartWork is what each agent was allowed at work, by what it wrote.
	PartWork Part = "work"
	// PartAudit is the same by the audit events of the agents' account.
	PartAudit Part = "audit"
	// PartPodToken is how long a token was good after its pod was deleted.
	PartPodToken Part = "token-of-a-deleted-pod"
	// PartNextPod is what the agent was allowed in the pod that took the place of the deleted one.
	PartNextPod Part = "pod-after-a-deleted-one"
	// PartNodeToken is whether a token was good after the Node of its pod was deleted.
	PartNodeToken Part = "token-of-a-deleted-node"
)

// Parts returns all parts.
func Parts() []Part { return []Part{PartWork, PartAudit, PartPodToken, PartNextPod, PartNodeToken} }

// Check is one thing that was looked at. It passed if Got is Want.
type Check struct {
	What string
	Want string
	Got  string
}

// Passed reports whether what was seen is what has to be.
func (c Check) Passed() bool { return c.Want == c.Got }

// Judgement is what follows from what was seen of the agents.
type Judgement struct {
	// Checks has nothing of a part that could not be looked at.
	Checks map[Part][]Check
	// PodWindow is how long a token was good after its pod was deleted, NodeWindow after its pod's Node was.
	PodWindow  time.Duration
	NodeWindow time.Duration
}

// Judge judges what was seen of the agents with a suffix. An error says that it cannot have been seen like that.
func (o *Observation) Judge(suffix string) (*Judgement, error) {
	s := &o.Seen
	whole := len(s.Nodes) > 1 && s.Pod != nil && s.Node != nil
	if !whole && o.Problem == "" {
		return nil, errors.New("what was seen of the node agents is not all that has to be")
	}
	if err := s.order(); err != nil {
		return nil, fmt.Errorf("what was seen of the node agents cannot have been: %w", err)
	}
	j := &Judgement{Checks: map[Part][]Check{}}
	j.judgeWork(s, accountOf(suffix), o.Problem == "")
	if s.Pod != nil {
		j.judgePod(s, o.Problem == "")
	}
	if s.Node != nil {
		var check Check
		check, j.NodeWindow = s.Node.outlives()
		j.Checks[PartNodeToken] = []Check{check}
	}
	return j, nil
}

// judgeWork judges what the agents wrote and their audit events. whole says that nothing is missing.
func (j *Judgement) judgeWork(s *AgentsEvidence, account string, whole bool) {
	var all []Attempt
	for _, node := range s.Nodes {
		if lines, known := s.Work[node]; known || whole {
			j.Checks[PartWork] = append(j.Checks[PartWork], judgeLines(node, s.Nodes, lines)...)
			all = append(all, lines...)
		}
	}
	ownEvents := slices.DeleteFunc(slices.Clone(s.Events), func(e auditv1.Event) bool { return e.User.Username != account })
	j.Checks[PartAudit] = judgeEvents(all, ownEvents)
}

func (j *Judgement) judgePod(s *AgentsEvidence, whole bool) {
	const ended = "within the cache's time"
	got := ended
	j.PodWindow = s.Pod.until(401)
	hasEnded := j.PodWindow >= 0
	if !hasEnded || s.Pod.goodFor() > tokenTTL+slack {
		got = "after " + j.PodWindow.String()
	}
	j.Checks[PartPodToken] = []Check{{What: "the token of a deleted pod ends", Want: ended, Got: got}}
	if whole || len(s.After) > 0 {
		j.Checks[PartNextPod] = judgeLines(s.Nodes[0], s.Nodes, s.After)
	}
}

// pause is how long may pass at most from one question with a stolen token to the next, which follow each other by poll.
const pause = tokenTTL / 2

// order says what cannot have come as it stands there: agents work, then a pod is deleted and the agent works on in
// another, then a node is deleted; and after each deletion a token is used again and again, without a pause in which it
// could have given something else.
func (s *AgentsEvidence) order() error {
	var events sequence
	for node, lines := range s.Work {
		if !slices.Contains(s.Nodes, node) {
			events.report("an agent worked on %s, which is not one of the nodes", node)
		}
		events.addLines(lines)
	}
	if s.Pod != nil {
		events.addStolen("pod", s.Pod)
		for _, l := range s.After { // while the token was used from outside, too
			if l.Time.Before(s.Pod.Deleted) {
				events.report("an agent's line of %s is said to be of the next pod", l.Time)
			}
		}
		events.addLines(s.After)
	}
	if s.Node != nil {
		events.addStolen("node", s.Node)
	}
	return errors.Join(events.problems...)
}

// sequence checks that each event is later than those before it.
type sequence struct {
	last     time.Time
	problems []error
}

func (q *sequence) report(format string, args ...any) {
	q.problems = append(q.problems, fmt.Errorf(format, args...))
}

func (q *sequence) add(what string, at time.Time) {
	if at.Before(q.last) {
		q.report("%s at %s, after %s", what, at, q.last)
		return
	}
	q.last = at
}

// addLines adds what agents wrote side by side: the last of it is what others have to follow.
func (q *sequence) addLines(lines []Attempt) {
	for _, l := range lines {
		if l.Time.After(q.last) {
			q.last = l.Time
		}
	}
}

func (q *sequence) addStolen(what string, loss *StolenToken) {
	q.add(what+" was deleted", loss.Deleted)
	for _, a := range loss.Answers {
		if delay := a.At.Sub(q.last); delay > pause {
			q.report("the token of the deleted %s was not used for %s", what, delay)
		}
		q.add("an answer came", a.At)
	}
}

// until is how long it took until an answer had a code, and no other came: less than 0 if none had.
func (s *StolenToken) until(code int) time.Duration {
	i := slices.IndexFunc(s.Answers, func(a TimedCode) bool { return a.Code == code })
	if i < 0 || i != len(s.Answers)-1 {
		return -1
	}
	return s.Answers[i].At.Sub(s.Deleted)
}

// goodFor returns for how long the token was seen to be good. A busy machine may ask late for the first time after its end, so
// that the first refusal says less.
func (s *StolenToken) goodFor() time.Duration {
	last := time.Duration(0)
	for _, a := range s.Answers {
		if a.Code == 200 {
			last = a.At.Sub(s.Deleted)
		}
	}
	return last
}

// outlives judges a token that has to stay good for longer than everything that the API server remembers: token and
// impersonation. It also returns how long the token was seen to be good.
func (s *StolenToken) outlives() (check Check, good time.Duration) {
	check = Check{What: "the token of a pod outlives the node", Want: "200", Got: "200"}
	last := time.Duration(0)
	for _, a := range s.Answers {
		if a.Code != 200 {
			check.Got = fmt.Sprintf("%d after %s", a.Code, a.At.Sub(s.Deleted))
			return check, 0
		}
		last = a.At.Sub(s.Deleted)
	}
	if last < tokenTTL {
		check.Got = fmt.Sprintf("200 for %s only", last)
	}
	return check, last
}

func (a *Agents) atWork(ctx context.Context, s *AgentsEvidence) (err error) {
	for _, node := range a.Nodes {
		if s.Work[node], err = a.rounds(ctx, node, time.Time{}); err != nil {
			return err
		}
	}
	s.Events, err = a.cluster.EventsBy(a.User)
	return err
}

// stolen is the token of the agent on a node in other hands, after it was used.
func (a *Agents) stolen(ctx context.Context, node string) (*holder, *corev1.Pod, error) {
	pod, err := a.pod(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	token, err := Token(ctx, a.cluster.Admin(), a.Name, pod.Name)
	if err != nil {
		return nil, nil, err
	}
	h, err := a.holder(token, node)
	if err != nil {
		return nil, nil, err
	}
	if code, err := h.list(ctx); err != nil || code != 200 {
		return nil, nil, fmt.Errorf("the token of pod %s gives %d (expected 200): %w", pod.Name, code, err)
	}
	return h, pod, nil
}

// deletePod deletes the pod of an agent: its token ends once the API server forgot it; the agent goes on in a new pod.
func (a *Agents) deletePod(ctx context.Context, s *AgentsEvidence) error {
	node := a.Nodes[0]
	h, pod, err := a.stolen(ctx, node)
	if err != nil {
		return err
	}
	s.Pod = &StolenToken{Deleted: time.Now()}
	if err := a.typed.CoreV1().Pods(a.Name).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		return err
	}
	if err := h.until(ctx, 401, s.Pod); err != nil {
		return err
	}
	if err := a.ready(ctx); err != nil {
		return err
	}
	s.After, err = a.rounds(ctx, node, s.Pod.Deleted)
	return err
}

// deleteNode deletes the Node object of an agent's node, and makes it again: the kubelet, which runs all the
// while, takes it as its own. A token that is bound to a pod names the node only for others to read, so it stays
// valid, and its holder may be a node that is not there.
func (a *Agents) deleteNode(ctx context.Context, s *AgentsEvidence) (err error) {
	name := a.Nodes[0]
	h, _, err := a.stolen(ctx, name)
	if err != nil {
		return err
	}
	node, err := a.typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s.Node = &StolenToken{Deleted: time.Now()}
	if err := a.typed.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.restore(context.WithoutCancel(ctx), node)) }()
	return apiwait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		code, err := h.list(ctx)
		if err == nil {
			s.Node.Answers = append(s.Node.Answers, TimedCode{time.Now(), code})
		}
		return code != 200 || time.Since(s.Node.Deleted) >= tokenTTL+slack, err
	})
}

// restore makes a deleted Node object again, as it was, and waits until its kubelet and the agent are there.
func (a *Agents) restore(ctx context.Context, node *corev1.Node) error {
	newNode := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels, Annotations: node.Annotations},
		Spec:       node.Spec,
	}
	if _, err := a.typed.CoreV1().Nodes().Create(ctx, newNode, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("making node %s again: %w", node.Name, err)
	}
	live := conditions.New(a.client.Resources()).ResourceMatch(newNode, func(o k8s.Object) bool {
		return ready(*o.(*corev1.Node))
	})
	if err := wait.For(live, a.waitOptions(ctx)...); err != nil {
		return fmt.Errorf("node %s is not ready again: %w", node.Name, err)
	}
	return a.ready(ctx)
}
