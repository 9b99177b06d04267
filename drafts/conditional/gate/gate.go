// Package gate plays the API-server vectors of KEP-5681 against a kube-apiserver that has the gate
// ConditionalAuthorization: its authorizers are webhooks that answer as the vectors say, and real requests are sent.
//
// No release of Kubernetes has the gate. The names of the gate, the plugin and the field are those of the KEP.
package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/verdicts"
)

// Gate is the name of the gate.
const Gate = "ConditionalAuthorization"

const plugin = "AuthorizationConditionsEnforcer"

// Options say what vectors are played on.
type Options struct {
	// Release and Binaries name the program; TEST_ASSET_KUBE_APISERVER has the last word.
	Release  local.Release
	Binaries *local.Binaries
	Wire     *wire.Revision // the revision in which the webhooks speak
}

// Play is what was seen of all vectors that can be played.
type Play struct {
	// Server is the program and its version, Wire the revision in which the webhooks spoke.
	Server string `json:"server"`
	Wire   string `json:"wire"`
	Seen   []Seen `json:"seen"` // in the order in which they were played
}

type kind struct{ gate, plugin string }

// Run plays vectors, those about the same configuration on one API server.
func Run(ctx context.Context, all []*vectors.Vector, o Options) (*Play, error) {
	out, of, length := &Play{Wire: o.Wire.Name}, map[kind][]*vectors.Vector{}, 1
	for _, v := range all {
		if m := v.APIServer; Cannot(v, o.Wire) == "" {
			k := kind{m.Server.Gate, m.Server.Plugin}
			of[k], length = append(of[k], v), max(length, len(m.Chain), len(m.Compound))
		}
	}
	// The usual one comes first, and always: what does not start otherwise is held against it.
	for i, k := range []kind{{"on", "on"}, {"on", "off"}, {"off", "on"}, {"off", "off"}, {"rolledBack", "on"}} {
		if i > 0 && of[k] == nil {
			continue
		}
		if err := out.on(ctx, k, length, of[k], o); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (p *Play) on(ctx context.Context, k kind, length int, all []*vectors.Vector, o Options) (err error) {
	playing := &player{said: &webhooks{wire: o.Wire}}
	if playing.hooks, err = server.ServeLoopback(ctx, playing.said.handler(), nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, playing.hooks.Close()) }()
	if err := playing.start(ctx, k, length, o); err != nil {
		if _, ended := errors.AsType[*local.ProcessError](err); !ended || p.Server == "" {
			return unknown(ctx, err, o)
		}
		p.Seen = append(p.Seen, seq.Map(all, func(v *vectors.Vector) Seen { return Seen{Vector: v.ID} })...)
		return nil
	}
	defer func() { err = errors.Join(err, playing.Stop()) }()
	p.Server = cmp.Or(p.Server, "kube-apiserver "+playing.Witness.GitVersion)
	if err := playing.register(ctx); err != nil {
		return err
	}
	for _, v := range all {
		seen, err := playing.play(ctx, v)
		if err = errors.Join(err, playing.ClusterErr()); err != nil {
			return fmt.Errorf("%s: %w", v.ID, err)
		}
		p.Seen = append(p.Seen, seen)
	}
	return nil
}

// authorizer is one webhook. It is asked each time.
const authorizer = `- {type: Webhook, name: %[1]s, webhook: {authorizedTTL: 1s, unauthorizedTTL: 1s, cacheAuthorizedRequests: false, cacheUnauthorizedRequests: false,
    timeout: 5s, subjectAccessReviewVersion: v1, failurePolicy: %[2]s%[3]s, connectionInfo: {type: KubeConfigFile, kubeConfigFile: "%[4]s/%[1]s"}}}
`

func (p *player) start(ctx context.Context, k kind, length int, o Options) (err error) {
	plain, conditions := &server.Plain{Files: map[string][]byte{}, Args: []string{"--enable-admission-plugins=" + plugin}}, ""
	if k.plugin == "off" {
		plain.Args = []string{"--disable-admission-plugins=" + plugin}
	}
	if k.gate != "off" {
		conditions = ", conditionsEndpointKubeConfigContext: " + reference.ConditionsContext
	}
	config := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
	add := func(place string, mode vectors.FailureMode) {
		config += fmt.Sprintf(authorizer, place, mode, conditions, local.DirPlaceholder)
		raw, writeErr := kubeconfig(p.hooks, place)
		plain.Files[place], err = raw, errors.Join(err, writeErr)
	}
	for i := range length {
		add(placeOf(i, vectors.FailDeny), vectors.FailDeny)
		add(placeOf(i, vectors.FailNoOpinion), vectors.FailNoOpinion)
	}
	if add(behindAll, vectors.FailNoOpinion); err == nil {
		plain.Authorization = []byte(config + "- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n")
		p.Server, err = server.Start(ctx, options(o, plain, map[string]bool{Gate: k.gate == "on"}))
	}
	return err
}

func options(o Options, plain *server.Plain, gates map[string]bool) server.Options {
	return server.Options{
		Cell:    verdicts.Cell{Name: o.Release.Minor + "-gate", Provider: server.Local, Kubernetes: o.Release.Version, Gate: string(server.AskDefault)},
		Release: o.Release, FeatureGates: gates, Binaries: o.Binaries, Plain: plain,
	}
}

// unknown says in a line that an API server does not know the gate, whichever version it is.
func unknown(ctx context.Context, err error, o Options) error {
	if !strings.Contains(err.Error(), "unrecognized feature gate: "+Gate) {
		return err
	}
	t, err := server.Start(ctx, options(o, &server.Plain{}, nil))
	if err != nil {
		return err
	}
	return errors.Join(fmt.Errorf("kube-apiserver %s does not know the gate %s", t.Witness.GitVersion, Gate), t.Stop())
}

// Cannot says why a vector cannot be played on an API server; it is empty for all others.
func Cannot(v *vectors.Vector, w *wire.Revision) string {
	m := v.APIServer
	if m == nil {
		return "it judges an authorizer, and this is an API server"
	}
	q := m.Request
	_, known := kinds[q.Resource]
	_, verb := methods[q.Verb]
	if what := w.Cannot(v); what != "" {
		return "the wire cannot say it: " + what
	}
	for _, a := range slices.Concat(m.Chain, m.Compound) {
		switch {
		case a.Cached:
			return "it is about the cache, and nothing is cached here"
		case a.Empty:
			return "no webhook answers with an empty decision"
		case a.Error && (a.Decision != vectors.NoOpinion || a.FailureMode != vectors.FailDeny):
			return "a webhook in error is its failure policy, and no other decision"
		}
	}
	// What is left of a vector without what one set evaluates to: the API server asks for that, and is told.
	rest := m.Want
	rest.Decision, rest.Decisions, rest.Error, rest.Admitted, rest.Reason = "", nil, nil, nil, nil
	switch {
	case m.Server.Version == "old":
		return "it is about an API server that does not know the KEP"
	case len(m.Server.BuiltinTypes) > 0:
		return "it is about conditions that the API server evaluates itself, of which it may know none"
	case q.Served == "aggregated":
		return "no aggregated API server is started"
	case strings.Contains(q.APIGroup+q.APIVersion+q.Resource, "*"):
		return "no request has a wildcard"
	case q.Verb == "impersonate":
		return "it is the impersonation filter that asks for the verb"
	case !verb || !known && q.Served != "nobody":
		return "no request is known that is authorized so"
	case len(m.Chain) == 1 && (m.Chain[0].Decision == vectors.Conditional || m.Chain[0].Status != nil) && rest.Stated(&rest) == 0:
		return "it is about what one set evaluates to, which the authorizer says, and that is ours"
	}
	return ""
}

// Judge is what came of all vectors, in the reading of the chain that the API server has: the one with fewer failures.
func Judge(all []*vectors.Vector, p *Play) *certification.Played {
	lazy, eager := p.judgeAll(all, vectors.Lazy, "lazily"), p.judgeAll(all, vectors.Eager, "eagerly")
	if eager.Totals[verdicts.Failed] < lazy.Totals[verdicts.Failed] {
		return eager
	}
	return lazy
}

func (p *Play) judgeAll(all []*vectors.Vector, reading vectors.Reading, how string) *certification.Played {
	out := &certification.Played{Subject: p.Server + ", which reads chains " + how}
	for _, v := range all {
		r := certification.VectorResult{Vector: v, Wire: p.Wire, Verdict: verdicts.NotSupported}
		if w, err := wire.Named(p.Wire); err != nil {
			r.Verdict, r.Why = verdicts.Invalid, []string{err.Error()}
		} else if why := Cannot(v, w); why != "" {
			r.Why = []string{why}
		} else if at := slices.IndexFunc(p.Seen, func(s Seen) bool { return s.Vector == v.ID }); at < 0 {
			r.Verdict, r.Why = verdicts.Invalid, []string{"it was not played"}
		} else {
			r.Verdict, r.Why = p.Seen[at].judge(v, reading)
		}
		out.Add(r)
	}
	return out
}

func (s *Seen) judge(v *vectors.Vector, reading vectors.Reading) (verdicts.Verdict, []string) {
	got, broken := s.want(v.APIServer)
	want := v.APIServer.Wanted(reading)
	wrong := append(want.Differences(got), broken...)
	switch unseen := want.Unknown(got); {
	case len(wrong) > 0 && v.Level == vectors.Must:
		return verdicts.Failed, wrong
	case len(wrong) > 0:
		return verdicts.Passed, seq.Map(wrong, func(s string) string { return "the text advises otherwise: " + s })
	case want.Stated(got) == 0:
		return verdicts.NotSupported, []string{"nothing of what it states is seen of an API server"}
	case len(unseen) > 0:
		return verdicts.Passed, []string{"not seen: " + strings.Join(unseen, ", ")}
	}
	return verdicts.Passed, nil
}

// want is what could be seen, in the words of vectors; broken is what is wrong whatever a vector wants.
func (s *Seen) want(m *vectors.APIServer) (w *vectors.Want, broken []string) {
	w = &vectors.Want{Starts: &s.Starts}
	if !s.Starts {
		return w, nil
	}
	w.ConditionsChain = shown(s.Review, m)
	failed := s.Review.EvaluationError != ""
	switch w.Authorized = s.Review.Decision(); {
	case w.Authorized != vectors.Conditional:
		w.Error = &failed
	case slices.ContainsFunc(vectors.Leaves(s.Review.ConditionsChain), canAllow):
		w.Authorized = vectors.ConditionalAllow
	default:
		w.Authorized = vectors.ConditionalDeny
	}
	if s.Request == nil { // of a caller that wants no conditions
		w.Asked, w.EvaluatedBy, w.Decision = names(s.ReviewEvents, asked), names(s.ReviewEvents, evaluates), w.Authorized
		return w, nil
	}
	before, after := s.Request.Events, []string{}
	if i := slices.Index(before, admission); i >= 0 {
		before, after = before[:i], before[i:]
	}
	w.Asked, w.AskedLater, w.EvaluatedBy = names(before, asked), names(after, asked), names(s.Request.Events, evaluates)
	proceeded, admitted := s.Request.proceeded(), s.Request.admitted()
	w.Proceeds, w.Admitted, w.Decision = &proceeded, &admitted, s.decision(m)
	for _, sent := range []*Sent{s.Request, s.Alone, s.Behind} {
		// The filter answers 500 to what nobody has allowed and somebody was in error about.
		if sent != nil && !sent.admitted() && sent.Code != http.StatusForbidden && (sent.Code != http.StatusInternalServerError || sent.proceeded()) {
			broken = append(broken, fmt.Sprintf("the request is answered %d", sent.Code))
		}
		if sent != nil && slices.ContainsFunc(sent.Events, func(e string) bool { return strings.HasSuffix(e, forObject+"-1") }) {
			broken = append(broken, "conditions are evaluated by other data than admission has")
		}
	}
	return w, slices.Compact(broken)
}

func canAllow(s vectors.ConditionSet) bool {
	return s.Allowed || slices.ContainsFunc(s.Conditions, func(c vectors.Condition) bool { return c.Effect == vectors.Allow })
}

// names are those of an event, of the first check and the first object.
func names(events []string, event string) []string {
	out := []string{}
	for _, e := range events {
		name, is := strings.CutPrefix(e, event+" ")
		if name, number, of := strings.Cut(name, forObject); is && (!of || number == "-1") {
			out = append(out, name)
		}
	}
	return out
}

func shown(r *vectors.SubjectAccessReviewStatus, m *vectors.APIServer) []string {
	out := []string{}
	for _, set := range r.ConditionsChain {
		name := set.AuthorizerName
		if a := link(m.Chain, name); a != nil {
			name = a.Name
		}
		for _, leaf := range vectors.Leaves([]vectors.ConditionSet{set}) {
			d := (&vectors.SubjectAccessReviewStatus{Allowed: leaf.Allowed, Denied: leaf.Denied}).Decision()
			out = append(out, name+map[vectors.Decision]string{vectors.Allow: " allowed", vectors.Deny: " denied", vectors.NoOpinion: " conditions"}[d])
		}
	}
	return out
}

// decision is the concrete one. A request that was refused was denied, or nobody had an opinion: then an authorizer behind
// the chain could allow it. Of a request that supports no conditions, and of several objects, that cannot be told.
func (s *Seen) decision(m *vectors.APIServer) vectors.Decision {
	writes := slices.Contains([]string{"create", "update", "patch", "delete"}, m.Request.Verb) && m.Request.Served == "self" || m.Request.Connect
	switch {
	case m.Objects > 1:
		return ""
	case s.Alone.admitted():
		return vectors.Allow
	case s.Behind.admitted():
		return vectors.NoOpinion
	case writes || s.Review.Decision() == vectors.Deny:
		return vectors.Deny
	}
	return ""
}
