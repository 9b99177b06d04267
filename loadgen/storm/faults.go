package storm

import (
	"fmt"
	"slices"
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// sendKey identifies a request of a schedule.

// sendKey names a request of a schedule.
type sendKey struct {
	agent, kind int32
	turn        int
}

// findFaults returns how a block, with its log, differs from its schedule. Such faults are ours, however slow the
// machine was and whatever the servers did.
func findFaults(p *profile.Profile, b *run.Block, sends []pacer.Send) (faults []string) {
	addf := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if length := time.Duration(b.Length); length != p.Block {
		addf("the block is %s long, the profile says %s", length, p.Block)
	}
	if n := b.Lag.Count() - b.Late; n > 0 {
		// The rank is known to within half a bucket, which is less than 1 %.
		if lag := b.Lag.Rank(n); lag > p.LateTolerance*101/100 {
			addf("%d requests are counted as late, and more were sent %s after their time", b.Late, lag)
		}
	}
	if p.Reflectors || b.FollowsServer {
		return faults // the servers decide when agents ask
	}
	each := int64(1 + p.SelfReviews)
	most := int64(len(sends)) * each
	if least := most - b.Dropped*(each-1); b.Planned > most || b.Planned < least {
		addf("%d requests are counted as planned, the schedule has %d", b.Planned, most)
	}
	if p.SelfReviews > 0 || int64(len(b.Log)) != b.Sent+b.Retried {
		return faults // the log also has other requests, or is incomplete
	}
	return append(faults, compareLog(b, sends)...)
}

// compareLog returns how the requests in the log of a block differ from those of its schedule. Each may have been sent
// more than once.
func compareLog(b *run.Block, sends []pacer.Send) (faults []string) {
	scheduled, sent := map[sendKey]bool{}, map[sendKey]bool{}
	for _, r := range population.Planned(sends, 0) {
		scheduled[sendKey{r.Agent, r.Kind, r.Turn}] = true
	}
	for _, r := range b.Log {
		k := sendKey{r.Agent, r.Kind, r.Turn}
		if !scheduled[k] {
			return append(faults, fmt.Sprintf("request %d of agent %d was sent, and is not in the schedule", r.Turn, r.Agent))
		}
		sent[k] = true
	}
	if n := int64(len(sent)); n != b.Sent {
		faults = append(faults, fmt.Sprintf("%d requests are counted as sent, the log has %d", b.Sent, n))
	}
	return faults
}

// findPredictionFaults returns how the prediction of a block can't be one.
func findPredictionFaults(b *run.Block) (faults []string) {
	p := b.Predicted
	if p == nil {
		return nil
	}
	addf := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if slices.ContainsFunc(p.Checks, func(c run.CheckRange) bool { return c.Low < 0 || c.High < c.Low }) {
		addf("a prediction is not a range: %v", p.Checks)
	}
	agents := int64(p.Agents)
	if p.Agents > b.Agents || p.First > agents || p.First < 0 {
		addf("of %d agents %d are said to have asked, %d of them for the first time", b.Agents, p.Agents, p.First)
	}
	if agents*int64(p.Fewest) > p.Requests || agents*int64(p.Most) < p.Requests {
		addf("%d agents that asked %d to %d times each are said to have sent %d requests", p.Agents, p.Fewest, p.Most, p.Requests)
	}
	return faults
}
