// Package run is what a load run leaves behind: counters and histograms for each block, and the circumstances. It is
// data, and judges nothing. Shards return blocks of this form, which merge exactly.
package run

import (
	"slices"
	"time"

	"github.com/authzconf/authzconf/scenarios"
)

// Run is one load run.
type Run struct {
	// Profile is the profile's name.
	Profile string `json:"profile"`
	Seed    int64  `json:"seed"`
	// Started and Finished are the beginning and the end of the run.
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	Machine  Machine   `json:"machine"`
	// Servers are the control planes under load, by the name that blocks use.
	Servers    []Server   `json:"servers"`
	Authorizer string     `json:"authorizer,omitempty"` // what decides in addition to RBAC, such as "webhook, 5ms"
	Population Population `json:"population,omitzero"`  // who took part
	// Agents, Pairs and Shards are what was requested.
	Agents  int `json:"agents"`
	Pairs   int `json:"pairs"`
	Starts  int `json:"starts,omitempty"`
	Shards  int `json:"shards"`
	WarmUps int `json:"warmUps,omitempty"` // how many blocks for warming up were run and discarded
	// Engine says what shards are: processes, or pods of a Job ("kubernetes"). Empty means processes.
	Engine string  `json:"engine,omitempty"`
	Blocks []Block `json:"blocks,omitempty"` // in the order in which they ran
	// Growth is how much memory the API servers had before the blocks of the last start, and after them.
	Growth []Growth `json:"growth,omitempty"`
	// Problems are what made the run inconclusive while it ran: a server died, a shard was lost, or recorder and
	// metrics differ.
	Problems []Problem `json:"problems"`
	// Clocks are the clocks of shards, compared with the coordinator's: for each the measurement with the largest
	// offset.
	Clocks []Clock `json:"clocks,omitempty"`
	// Notes are circumstances that a reader should know, such as whose cluster it was, and what was subtracted.
	Notes []string `json:"notes,omitempty"`
	// Steady means that blocks, or their Settled parts, are as long as the steady state of their schedule needs.
	Steady bool `json:"steady,omitempty"`
	// OwnUnknown means that the checks of the requests themselves could not be told from those of others in the
	// cluster, so that Reviews are only those of impersonation.
	OwnUnknown bool `json:"ownUnknown,omitempty"`
	// Interrupted means that the user ended the run early, so that it is incomplete.
	Interrupted bool `json:"interrupted,omitempty"`
	// EndedAfterFinding means that the user ended the run while it looked for fewer requests that show what is not as
	// predicted. That was found in a block which ended by itself.
	EndedAfterFinding bool `json:"endedAfterFinding,omitempty"`
}

// Problem is something that went wrong with the measuring.
type Problem struct {
	Block int    `json:"block"` // the index of the block, -1 for the run as a whole
	Text  string `json:"text"`
}

// Clock is how far a shard's clock was ahead of the coordinator's, with half of the round trip by which that was
// measured.
type Clock struct {
	Shard       string   `json:"shard"`
	Offset      Duration `json:"offset"`
	Uncertainty Duration `json:"uncertainty"`
}

// Machine describes where everything ran.
type Machine struct {
	CPUs        int     `json:"cpus"`
	MemoryBytes int64   `json:"memoryBytes"`
	Go          string  `json:"go"`
	OS          string  `json:"os"`
	LoadBefore  float64 `json:"loadBefore"` // 1 min load average before the first block
	LoadAfter   float64 `json:"loadAfter"`
}

// Server is one control plane.
type Server struct {
	Name       string `json:"name"`
	GitVersion string `json:"gitVersion"`
	Emulated   string `json:"emulated,omitempty"`
	// Gate is the state of ConstrainedImpersonation as read back: on or off.
	Gate         scenarios.Gate `json:"gate"`
	WebhookDelay Duration       `json:"webhookDelay"`         // how much the authorizer adds to every answer
	Mismatches   []string       `json:"mismatches,omitempty"` // how the witness differs from what was requested
}

// Duration is a time.Duration written as "1.5ms" in JSON.
type Duration = scenarios.Duration

// DropOwn removes the checks of the requests themselves from every block, if they cannot be told from those of others.
func (r *Run) DropOwn() {
	if !r.OwnUnknown {
		return
	}
	for i := range r.Blocks {
		b := &r.Blocks[i]
		b.Background = 0
		b.Reviews = slices.DeleteFunc(slices.Clone(b.Reviews), func(c ReviewCount) bool { return c.Mode == RequestMode })
	}
}
