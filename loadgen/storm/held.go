package storm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
)

// head is of a run what follows from what was asked for.
func (o *Options) head() *run.Run {
	p := o.Profile
	return &run.Run{
		APIVersion: run.APIVersion, Kind: run.Kind, Tool: o.Tool, Command: o.Called,
		Profile: p.Name, ProfileYAML: string(o.ProfileYAML), Seed: o.Seed,
		Agents: p.Agents(), Population: who(p), Authorizer: p.Authorizer.Text(p.WebhookDelay), Pairs: p.Pairs, Starts: p.Starts,
		Shards: o.Shards, Engine: o.Engine,
	}
}

// Hold says where a run is not one of what was asked for: its head follows from that, each block is the one
// that follows from it, within the run and behind the block before, and has its prediction.
func (o *Options) Hold(r *run.Run) error {
	head := *r
	head.Started, head.Finished, head.Machine, head.WarmUps, head.Interrupted = time.Time{}, time.Time{}, run.Machine{}, 0, false
	head.Servers, head.Blocks, head.Problems, head.Clocks, head.Notes = nil, nil, nil, nil, nil
	want := o.head()
	if head.Authorizer == "" && head.Engine == "" && head.Population == (run.Population{}) { // a run of an earlier release says nothing of these
		want.Authorizer, want.Engine, want.Population = "", "", run.Population{}
	}
	if change := reports.Change(head, want); change != "" && !o.can().Foreign { // which has a say itself
		return fmt.Errorf("the run is another one: %s", change)
	}
	servers := seq.Map(o.Profile.Servers(), func(s profile.Server) run.Server {
		return run.Server{Name: string(s), WebhookDelay: run.Duration(o.Profile.WebhookDelay)}
	})
	is := seq.Map(r.Servers, func(s run.Server) run.Server { return run.Server{Name: s.Name, WebhookDelay: s.WebhookDelay} })
	if change := reports.Change(is, servers); len(r.Problems) == 0 && !r.Interrupted && (change != "" || r.WarmUps != o.Profile.Starts*len(servers)) {
		return fmt.Errorf("its servers, warmed up %d times in %d starts, are not those of its profile: %s", r.WarmUps, o.Profile.Starts, change)
	}
	for _, s := range r.Servers {
		if gate := profile.Server(s.Name).Gate(); (s.Gate == "on") != (gate == profile.GateOn) || s.Emulated != "" && !strings.HasPrefix(s.GitVersion, "v"+s.Emulated+".") {
			return fmt.Errorf("%s is Kubernetes %s as %s with the gate %s", s.Name, s.GitVersion, s.Emulated, s.Gate)
		}
	}
	if r.Started.IsZero() {
		return errors.New("the run began at no time")
	}
	if err := o.holdSchedule(r); err != nil {
		return err
	}
	before := r.Started
	for i := range r.Blocks {
		b := &r.Blocks[i]
		switch {
		case b.Started.Before(before) || b.Started.After(r.Finished):
			return fmt.Errorf("block %d began at %s, not behind the one before and within the run", i, b.Started)
		case len(r.Problems) == 0 && !r.Interrupted && time.Duration(b.Length) != o.Profile.Block:
			return fmt.Errorf("block %d took %s, and was to take %s", i, time.Duration(b.Length), o.Profile.Block)
		case b.Lag.Count() > b.Late && b.Lag.Rank(b.Lag.Count()-b.Late) > o.Profile.LateTolerance*11/10: // the precision of ranks is finer
			return fmt.Errorf("block %d says that %d requests were late, and more were sent %s after their time", i, b.Late, b.Lag.Rank(b.Lag.Count()-b.Late))
		case o.Profile.Predictable() && len(r.Problems) == 0 && (b.Predicted == nil || b.Predicted.Requests != b.Sent+b.Retried):
			return fmt.Errorf("block %d has no prediction for its %d requests", i, b.Sent+b.Retried)
		case b.Predicted != nil && !fits(b.Predicted, b.Agents):
			return fmt.Errorf("block %d: %d agents cannot have asked %d times, %d of them at first", i, b.Predicted.Asked, b.Predicted.Requests, b.Predicted.First)
		}
		if len(r.Problems) == 0 && len(b.Attempts) == 0 && o.counts(b, r.Servers) {
			return fmt.Errorf("block %d: the API server of %s counts checks of impersonation, and none are there", i, b.Server)
		}
		before = b.Started.Add(time.Duration(b.Length))
	}
	return nil
}

// fits says whether so many agents can have sent so many requests, each as often as it is said.
func fits(p *run.Prediction, agents int) bool {
	asked, first := int64(p.Asked), p.First
	odd := slices.ContainsFunc(p.Checks, func(c run.CheckRange) bool { return c.Low < 0 || c.High < c.Low })
	return !odd && p.Asked <= agents && first >= 0 && first <= asked && asked*int64(p.Seldom) <= p.Requests && p.Requests <= asked*int64(p.Often)
}

// counts says whether an API server counts the checks that a block has: one of 1.36 or later with the gate on does, as long as it
// is not restarted.
func (o *Options) counts(b *run.Block, servers []run.Server) bool {
	impersonates := func(r run.ReviewCount) bool { return r.Mode != run.RequestMode && r.Count > 0 }
	newer := func(s run.Server) bool {
		v, err := version.ParseGeneric(s.GitVersion)
		return s.Name == b.Server && err == nil && v.AtLeast(version.MustParseGeneric("1.36.0")) && (s.Emulated == "" || s.Emulated == fmt.Sprintf("%d.%d", v.Major(), v.Minor()))
	}
	return o.Profile.OneServer() && !o.Profile.Authorizer.Cache && profile.Server(b.Server).Gate() == profile.GateOn &&
		slices.ContainsFunc(b.Reviews, impersonates) && slices.ContainsFunc(servers, newer)
}
