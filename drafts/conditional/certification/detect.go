package certification

import (
	"context"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// Auto stands for the revision of the wire that the webhook speaks. The webhook is asked for it.
const Auto = "auto"

// DetectWire asks a webhook for conditions, to find out which revision of the wire it speaks. It returns the newest one
// and the reason if no answer shows a revision.
func (b *Plan) DetectWire(ctx context.Context, ends []*certify.Webhook) (w *wire.Revision, unknown string, err error) {
	r, closeAll, err := newRunner(certify.NewRunner[Exchange](nil), Options{Plan: b, Webhooks: ends})
	if err != nil {
		return nil, "", err
	}
	defer closeAll()
	w = r.findRevision(ctx)
	return w, r.Stopped(), ctx.Err()
}

// findRevision asks for conditions in the form of each revision, until an answer shows which revision the webhook
// speaks. If no answer does, nothing else is asked: every other fault would follow from that, and there is one finding.
func (r *runner) findRevision(ctx context.Context) *wire.Revision {
	for _, q := range r.probeQuestions() {
		body, err := q.revision.AskAccess(q.spec)
		answer := r.post(ctx, q.revision, reviewEndpoint, Exchange{Vector: q.vector, Step: q.step, Variant: Probe}, body, err)
		if revisions := wire.Recognize(answer); len(revisions) > 0 {
			return revisions[0]
		}
		if unknown := wire.FindUnknown(answer); len(unknown) > 0 {
			r.End("an answer is in a form that no revision of the wire has")
		}
		if r.HasEnded() {
			return wire.Newest()
		}
	}
	r.End("no answer has conditions, in whichever way they are asked for")
	return wire.Newest()
}

// probeQuestion is a question of a step that asks for conditions, in the form of a revision.
type probeQuestion struct {
	vector   string
	step     int
	spec     vectors.SubjectAccessReviewSpec
	revision *wire.Revision
}

// probeQuestions returns the questions that have to be answered with conditions, each in all ways.
func (r *runner) probeQuestions() (all []probeQuestion) {
	for _, e := range r.Plan.entries {
		for i, s := range e.Steps {
			isConditional := s.Authorize != nil && s.Authorize.Want.OneOf[0] == vectors.Conditional
			if !isConditional || e.inexpressible != "" {
				continue
			}
			for _, revision := range []*wire.Revision{wire.Newest(), wire.Seed} {
				all = append(all, probeQuestion{e.id, i, s.Authorize.Spec, revision})
			}
		}
	}
	return all
}
