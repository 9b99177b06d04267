package certification

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/authzconf/authzconf/certify"
	webhook "github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/internal/seq"
)

// Explain asks a question of the plan again. It shows on one screen which policies the question is about, what was
// asked, as curl would send it, what the answer was, and what is wrong with the answer. A question is named as in
// findings, by its vector and step: ID#STEP. Without webhooks the reference is asked. Explain returns an error if its
// input is wrong.
func (b *Plan) Explain(ctx context.Context, w *wire.Revision, ends []*certify.Webhook, name string) (text string, isRight bool, err error) {
	e, step, err := b.findQuestion(name)
	if err != nil {
		return "", false, err
	}
	if why := e.inapplicable(w); why != "" {
		return "", false, fmt.Errorf("%s: it is not asked: %s", name, why)
	}
	subject, own := "the webhook", ""
	if ends == nil {
		server, served, err := b.serveReference(w, e, step)
		if err != nil {
			return "", false, err
		}
		defer func() { _ = server.Close() }()
		subject, own, ends = "the reference", server.URL, served
	}
	x, err := b.askAgain(ctx, w, ends, e, step)
	if err != nil {
		return "", false, err
	}
	findings, err := b.judgeAgain(x.exchanges)
	if err != nil {
		return "", false, err
	}
	var out strings.Builder
	b.describe(&out, e, step)
	answer := fmt.Sprintf("HTTP %d", x.last.HTTP)
	if x.last.Fault != "" {
		answer = x.last.Fault
	}
	_, _ = fmt.Fprintf(&out, "\n%s\n\nthe answer of %s: %s\n%s\n\n", x.curl, subject, answer, indent(x.last.Answer))
	if len(findings) == 0 {
		_, _ = fmt.Fprintln(&out, "right")
	}
	for _, f := range findings {
		_, _ = fmt.Fprintf(&out, "wrong: %s\n", f)
	}
	if own != "" { // nobody listens at this address any more
		return strings.ReplaceAll(out.String(), own, "https://authorizer.example.com"), len(findings) == 0, nil
	}
	return out.String(), len(findings) == 0, nil
}

// findQuestion returns the vector and the step of a question.
func (b *Plan) findQuestion(name string) (e *entry, step int, err error) {
	id, number, hasStep := strings.Cut(name, "#")
	if hasStep {
		if step, err = strconv.Atoi(number); err != nil {
			return nil, 0, fmt.Errorf("%q is not the step of a vector (expected a number, as in %s#0)", number, id)
		}
	}
	e = b.byID[id]
	if e == nil {
		return nil, 0, fmt.Errorf("there is no webhook vector %q: findings name theirs first, as in kep-5681/use-cases/names#1", id)
	}
	if step < 0 || step >= len(e.Steps) || e.Steps[step].SetPolicies != nil {
		return nil, 0, fmt.Errorf("%s asks nothing in step %d (expected one of %s)", id, step, strings.Join(e.questions(), ", "))
	}
	return e, step, nil
}

// questions returns the numbers of the steps that ask.
func (e *entry) questions() (all []string) {
	for i, s := range e.Steps {
		if s.SetPolicies == nil {
			all = append(all, strconv.Itoa(i))
		}
	}
	return all
}

// describe writes the vector, the policies and the right answer of a question.
func (b *Plan) describe(out *strings.Builder, e *entry, step int) {
	_, _ = fmt.Fprintf(
		out,
		"%s#%d: %s\n%s, %s (%s)\n\npolicies, of members of one group only:\n",
		e.id,
		step,
		strings.TrimSpace(e.vector.Description),
		e.vector.Source.Document,
		e.vector.Source.Section,
		e.vector.Level,
	)
	for _, p := range e.policiesAt(step) {
		_, _ = fmt.Fprintf(out, "  %s %s\n    %s\n", p.Effect, p.ID, strings.Join(strings.Fields(p.Expression), " "))
	}
	s := e.Steps[step]
	var want []vectors.Decision
	if s.Authorize != nil {
		want = s.Authorize.Want.OneOf
	} else {
		want = s.Evaluate.Want.OneOf
	}
	_, _ = fmt.Fprintf(out, "\nright is %s\n", strings.Join(seq.Map(want, func(d vectors.Decision) string { return string(d) }), " or "))
}

// policiesAt returns the policies that are in force in a step.
func (e *entry) policiesAt(step int) []vectors.Policy {
	all := e.Policies
	for _, s := range e.Steps[:step] {
		if s.SetPolicies != nil {
			all = s.SetPolicies
		}
	}
	return all
}

// serveReference serves the reference with the policies that are in force in a step.
func (b *Plan) serveReference(w *wire.Revision, e *entry, step int) (server *webhook.Server, ends []*certify.Webhook, err error) {
	s, err := reference.NewSnapshot(e.policiesAt(step))
	if err != nil {
		return nil, nil, err
	}
	if server, err = webhook.Start(reference.Handler(w, reference.New(w, s)), nil); err != nil {
		return nil, nil, err
	}
	raw, err := reference.Kubeconfig(server)
	for _, name := range []string{"", reference.ConditionsContext} {
		var end *certify.Webhook
		if err == nil {
			end, err = certify.ParseWebhook(raw, name)
		}
		ends = append(ends, end)
	}
	if err != nil {
		return nil, nil, errors.Join(err, server.Close())
	}
	return server, ends, nil
}

// repeatedQuestion is a question with its answer, and with the questions before it that gave its conditions.
type repeatedQuestion struct {
	exchanges []Exchange
	last      Exchange
	curl      string
}

// askAgain asks a question, after the questions that give its conditions.
func (b *Plan) askAgain(ctx context.Context, w *wire.Revision, ends []*certify.Webhook, e *entry, step int) (*repeatedQuestion, error) {
	r, closeAll, err := newRunner(certify.NewRunner[Exchange](nil), Options{Plan: b, Wire: w, Webhooks: ends})
	if err != nil {
		return nil, err
	}
	defer closeAll()
	steps := []int{step}
	for e.Steps[steps[0]].Evaluate != nil {
		steps = slices.Insert(steps, 0, e.Steps[steps[0]].Evaluate.Of)
	}
	out := &repeatedQuestion{}
	var chain []vectors.ConditionSet
	for _, i := range steps {
		x := Exchange{Vector: e.id, Step: i}
		body, to, err := b.body(w, e, i, chain)
		if err != nil {
			return nil, err
		}
		answer := r.post(ctx, w, to, x, body, nil)
		if chain = conditionsLeft(w, answer); e.Steps[i].Authorize != nil {
			chain = readChain(w, answer)
		}
		if i != step && chain == nil {
			return nil, fmt.Errorf(
				"%s#%d is about the conditions of step %d, which is answered without any: explain that one (or name another revision of the wire than %s by --wire)",
				e.id,
				step,
				i,
				w.Name,
			)
		}
		if out.curl, err = ends[to].Curl(ctx, indent(body)); err != nil {
			return nil, err
		}
	}
	out.exchanges, out.last = r.Answers, r.Answers[len(r.Answers)-1]
	return out, nil
}

// body returns the body that a step sends, and the endpoint to which it is sent.
func (b *Plan) body(w *wire.Revision, e *entry, step int, chain []vectors.ConditionSet) (body []byte, to int, err error) {
	if s := e.Steps[step].Authorize; s != nil {
		body, err = w.AskAccess(s.Spec)
		return body, reviewEndpoint, err
	}
	q := e.conditionsRequest(step, chain)
	q.UID = b.uid(Exchange{Vector: e.id, Step: step})
	body, err = w.AskConditions(q)
	return body, conditionsEndpoint, err
}

// judgeAgain returns what is wrong with answers, without advice.
func (b *Plan) judgeAgain(all []Exchange) (wrong []string, err error) {
	c, err := b.Judge(all)
	if err != nil {
		return nil, err
	}
	for _, f := range c.Findings {
		if !f.Advice {
			wrong = append(wrong, f.Reason+": "+strings.Join(f.Examples, "; "))
		}
	}
	return wrong, nil
}

// indent formats JSON on several lines. Text that is not JSON stays as it is.
func indent(raw []byte) []byte {
	var out bytes.Buffer
	if json.Indent(&out, raw, "", "  ") != nil {
		return raw
	}
	return out.Bytes()
}
