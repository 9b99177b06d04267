package conformance

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// checker finds faults of our own in what is about to be recorded of a cell: what it says may come from another request
// than the one that it is recorded for. It is safe for concurrent use.
type checker struct {
	mu    sync.Mutex
	ids   map[string]string // the scenario of each audit ID
	spans []requestSpan
}

// requestSpan is the time in which a request was under way.
type requestSpan struct {
	from     time.Time
	to       time.Time
	scenario string
	// isConcurrent is set if other requests of the scenario may be under way at the same time.
	isConcurrent bool
}

// check returns what is wrong with the evidence of a scenario, empty for nothing.
func (c *checker) check(s *scenarios.Scenario, e *verdicts.Evidence) (fault string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, evidence := range []*verdicts.Evidence{e, e.Control} {
		if evidence == nil || len(evidence.Steps) == 0 {
			continue
		}
		if _, names := s.BindOn(evidence.Suffix, evidence.Nodes); !maps.Equal(names, evidence.Names) {
			return "the names in the evidence are not those of the scenario"
		}
		isConcurrent := slices.ContainsFunc(s.Steps, func(st scenarios.Step) bool { return st.Beside })
		for _, o := range verdicts.Requests(evidence.Steps) {
			if fault := c.checkRequest(evidence, &o, isConcurrent); fault != "" {
				return fmt.Sprintf("step %d: %s", o.Step, fault)
			}
		}
	}
	return ""
}

func (c *checker) checkRequest(e *verdicts.Evidence, o *verdicts.Observation, isConcurrent bool) (fault string) {
	if o.Sent.Before(e.Started) || o.Answered.Before(o.Sent) || o.Answered.After(e.Ended) {
		return "the request was not under way while its scenario was"
	}
	if id := o.Response.AuditID; id != "" {
		if other, known := c.ids[id]; known {
			return fmt.Sprintf("the audit ID %s is also one of %s", id, other)
		}
		if c.ids == nil {
			c.ids = map[string]string{}
		}
		c.ids[id] = e.Scenario
	}
	now := requestSpan{o.Sent, o.Answered, e.Scenario, isConcurrent}
	for _, before := range c.spans {
		if before.overlaps(now) {
			return fmt.Sprintf("it was sent while a request of %s was under way, and a cell has one at a time", before.scenario)
		}
	}
	c.spans = append(c.spans, now)
	return ""
}

// overlaps reports whether two requests were under way at the same time that must not be.
func (s requestSpan) overlaps(o requestSpan) bool {
	if s.isConcurrent && s.scenario == o.scenario {
		return false
	}
	return s.from.Before(o.to) && o.from.Before(s.to)
}
