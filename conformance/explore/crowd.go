package explore

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/transport"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/oracle/cases"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// In a crowded batch cases are sent side by side, each request of a case after the one before. Beside them others send requests that
// they end before there is an answer, or that are refused, and send them again at once. No user of a case is one of another case,
// so nothing of that may change what a case is answered, nor what is asked about it: each is judged as if it were alone. Half of
// the cases share one connection, the others have one for each request that is under way. Cases with users that others have too
// come after that, one by one. Metrics are not compared, for what a request counts that was ended is open.
const (
	crowdSize   = 100
	disturbers  = 4
	disturbing  = "disturbance-" // how the users begin whom disturbers are, and impersonate
	patience    = 4 * time.Millisecond
	disturbRest = 3 * time.Millisecond
)

// isApart reports whether all users of a case, requestors and impersonated ones, are its own, and so is whom its grants are for.
func isApart(bound *scenarios.Scenario) bool {
	isOwn := func(user string) bool { return strings.Contains(user, bound.Suffix) }
	for _, q := range bound.Requestors {
		if !isOwn(q.User) {
			return false
		}
	}
	for _, st := range bound.Steps {
		isSomebodys := st.Request != nil && st.Request.Impersonate != nil && !isOwn(st.Request.Impersonate.User)
		if isSomebodys {
			return false
		}
	}
	return cases.IsUnique(bound)
}

// isAbout reports whether a review is about one of the case's users.
func (p *preparedCase) isAbout(r verdicts.Review) bool {
	return strings.Contains(r.Spec.User, p.suffix)
}

// sendCrowd sends the cases that have users of their own side by side, and then the others.
func (r *sender) sendCrowd(ctx context.Context, b *batch) error {
	sharedTransport, err := r.hosts[0].target.FrontProxyOfOne()
	if err != nil {
		return err
	}
	var crowd, others []*walk
	for _, w := range b.walks {
		if slices.ContainsFunc(w.parts, func(p *preparedCase) bool { return !p.isApart }) {
			others = append(others, w)
			continue
		}
		if len(crowd)%2 == 0 {
			w.parts[0].front = sharedTransport
		}
		crowd = append(crowd, w)
	}
	if err := r.sendAtOnce(ctx, b, crowd); err != nil {
		return err
	}
	return r.sendWalks(ctx, &batch{walks: others, special: b.special})
}

// sendAtOnce sends cases side by side, while others disturb them.
func (r *sender) sendAtOnce(ctx context.Context, b *batch, crowd []*walk) error {
	disturbedCtx, end := context.WithCancel(ctx)
	var others errgroup.Group
	for i := range disturbers {
		others.Go(func() error { return r.disturb(disturbedCtx, i) })
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(crowdSize)
	if r.cell.plan.o.Sent != nil {
		group.SetLimit(1) // it is told of one request after the other
	}
	for _, w := range crowd {
		group.Go(func() error { return r.sendOn(groupCtx, b, w) })
	}
	err := group.Wait()
	end()
	return cmp.Or(err, others.Wait())
}

// disturb sends requests until ctx ends: those of every second disturber are ended before there is an answer, the others are refused.
func (r *sender) disturb(ctx context.Context, number int) error {
	h := r.hosts[0]
	name := fmt.Sprintf("%s%d-%d", disturbing, r.cell.plan.o.Seed, number)
	rt := transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{UserName: name + "-victim"},
		transport.NewAuthProxyRoundTripper(name, "", nil, nil, h.front))
	client := &http.Client{Transport: rt, Timeout: timeout}
	for ctx.Err() == nil {
		requestCtx, end := ctx, func() {}
		if number%2 == 0 {
			requestCtx, end = context.WithTimeout(ctx, rand.N(patience))
		}
		err := sendDisturbance(requestCtx, client, h.target.Host())
		wasEnded := requestCtx.Err() != nil
		end()
		if err != nil && !wasEnded {
			return fmt.Errorf("disturbing: %w", err)
		}
		clusters.Pause(ctx, rand.N(disturbRest))
	}
	return nil
}

// sendDisturbance sends a request that nobody may send.
func sendDisturbance(ctx context.Context, client *http.Client, address string) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/api/v1/namespaces/default/pods", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(q)
	if err != nil {
		return err
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		return fmt.Errorf("a request that nobody may send was answered %s", answer.Status)
	}
	return nil
}

// dropDisturbances drops the reviews that disturbers brought about.
func dropDisturbances(observations *server.BatchObservations) {
	var reviews []verdicts.Review
	var seqs []uint64
	for i, review := range observations.Reviews {
		if !strings.HasPrefix(review.Spec.User, disturbing) {
			reviews, seqs = append(reviews, review), append(seqs, observations.Seqs[i])
		}
	}
	observations.Reviews, observations.Seqs = reviews, seqs
}

// repeatCrowd sends a crowd once more, under other names, if a case differed in it. What only cases side by side show is not seen when
// each is run alone; if cases differ side by side twice, it is the server that makes the difference.
func (j *batchJudge) repeatCrowd(ctx context.Context) error {
	hasDiffered := slices.ContainsFunc(j.suspects, func(p *preparedCase) bool { return p.isApart })
	wasEnded := j.evidence.Left == len(j.suspects)
	if !hasDiffered || wasEnded {
		return nil
	}
	ref := j.batch.ref
	ref.isRepeat = true
	repetition, err := ref.sequence.source.batch(ref)
	if err != nil {
		return err
	}
	evidence, err := j.sendAgain(ctx, repetition)
	switch {
	case err != nil && ctx.Err() != nil:
		j.evidence.Left = len(j.suspects)
		return nil //nolint:nilerr // that the user ended the run is not a problem of its own; what was not run again is counted
	case err != nil:
		return err
	case len(evidence) != len(repetition.cases):
		return fmt.Errorf("there is evidence of %d cases that were sent again, and there are %d", len(evidence), len(repetition.cases))
	}
	for i, p := range repetition.cases {
		if err := checkIdentity(p, evidence[i]); err != nil {
			return err
		}
		if _, err := j.judgeCase(p, evidence[i]); err != nil {
			return err
		}
		hasDiffered := p.isApart && !isPassed(p.result)
		if hasDiffered {
			j.differAgain++
		}
	}
	j.say("cases were sent side by side once more: %d differed", j.differAgain)
	return nil
}
