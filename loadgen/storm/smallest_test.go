package storm

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// TestSearchEndedByTheUser checks that a user who ends the search for a smaller schedule keeps the whole one with what
// was not as predicted, and that no further request is sent.
func TestSearchEndedByTheUser(t *testing.T) {
	a := side("associated-node", profile.GateOnServer)
	r := newRunner(
		Options{
			Profile:  burst(profile.Comparison{Name: "aa", A: a, B: a}),
			Release:  newest(),
			Binaries: &local.Binaries{},
			Seed:     1,
			Shards:   1,
		},
	)
	r.out.Blocks = append(r.out.Blocks, run.Block{})
	var sends []pacer.Send
	for i := range 3 * shownRequests {
		sends = append(sends, pacer.Send{At: time.Duration(i) * time.Millisecond, Agent: int32(i % 20)})
	}
	ended, end := context.WithCancel(t.Context())
	end()
	smallest := r.findSmallest(ended, nil, plannedBlock{side: a}, sends, []string{"one review too many"}) // without a server, so nothing is sent
	if smallest.Count != len(sends) || len(smallest.Requests) != shownRequests || !strings.Contains(smallest.Text, "one review too many") {
		t.Errorf("%d requests, %d of them shown: %s", smallest.Count, len(smallest.Requests), smallest.Text)
	}
	if len(r.out.Problems) > 0 {
		t.Errorf("problems %v", r.out.Problems)
	}
}
