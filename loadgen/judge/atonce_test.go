package judge

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/loadgen/run"
)

// TestChecksAtOnce checks that the largest number of any block counts, for checks and for the requests that follow
// them.
func TestChecksAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		blocks []*run.Block
		state  State
		detail string
	}{
		"side by side":                     {[]*run.Block{{ChecksAtOnce: 3, RequestsAtOnce: 9}, {ChecksAtOnce: 8, RequestsAtOnce: 2}}, Holds, "up to 8 checks of impersonation and 9 reviews of requests"},
		"all are refused":                  {[]*run.Block{{ChecksAtOnce: 40}}, Holds, "up to 40 checks"},
		"one check at a time":              {[]*run.Block{{ChecksAtOnce: 1, RequestsAtOnce: 1}}, Broken, "1 check of impersonation under way at once, at most; expected 8"},
		"one impersonated request at once": {[]*run.Block{{ChecksAtOnce: 40, RequestsAtOnce: 1}}, Broken, "1 review of requests themselves under way at once, at most"},
	} {
		var r Result
		r.judgeChecksAtOnce("deputy", c.blocks, 8)
		if len(r.Limits) != 1 || r.Limits[0].State != c.state || !strings.Contains(r.Limits[0].Detail, c.detail) {
			t.Errorf("%s: %+v", name, r.Limits)
		}
	}
	var r Result
	r.judgeChecksAtOnce("deputy", []*run.Block{{RequestsAtOnce: 40}}, 8)
	if len(r.Limits) != 0 || len(r.NotJudged) != 1 {
		t.Errorf("no check arrived: %+v, not judged %+v", r.Limits, r.NotJudged)
	}
}
