package explore

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/authzconf/authzconf/clusters/balancer"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/oracle/cases"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// What is special about a batch, whose grants are no RBAC objects then: of expired and reloaded each case has its last
// request once more, when what was remembered has expired, or the authorizer chain was changed and changed back; restarted
// is before once more, under the same names, for a new process. Of edged see edges.go, of the others walk.go.
const (
	expired, reloaded, before, restarted                     = "-expired", "-reloaded", "-before", "-restarted"
	edgedSuffix, besideSuffix, balancedSuffix, flippedSuffix = "-edged", "-beside", "-balanced", "-flipped"
	crowded                                                  = "-crowded" // see crowd.go
	specialEvery                                             = 40         // batches, for they take seconds
	expiry                                                   = remembered + 500*time.Millisecond
	freshTime                                                = 2 * time.Second // of requests before a reload: those after it find them remembered
)

// specials are what the first batches are made of. Roles are made while the batch before is sent, of which no server may
// be restarted then: so those of flipped and restarted are not before one with roles.
var specials = [][]string{{""}, {expired}, {before, restarted}, {reloaded}, {flippedSuffix}, {edgedSuffix}, {crowded}}

// specialsOf returns what the batches of a number are made of: of the others every second is beside, or balanced.
func specialsOf(n int) []string {
	if first := n % specialEvery; first < len(specials) {
		return specials[first]
	}
	return []string{[]string{"", besideSuffix, "", balancedSuffix}[n%4]}
}

// sequence is the cases that are sent to one control plane: one in total, from the index on.
type sequence struct {
	cell         *cell
	index, total int
	askedTarget  reports.FoundTarget // the control plane as the cell asks for it
	source       *source
}

func newSequence(c *cell, index, count int) *sequence {
	s := &sequence{cell: c, index: index, total: count, askedTarget: c.options.AskedTarget()}
	s.source = &source{sequence: s}
	return s
}

func (s *sequence) name() string { return fmt.Sprintf("sequence-%d", s.index) }

// key returns the key of the evidence about the sequence as a whole.
func (s *sequence) key() string { return s.cell.options.Cell.Name + "/" + s.name() + "/server" }

// count returns how many cases the sequence has.
func (s *sequence) count() int {
	n := s.cell.plan.o.Cases - s.index
	return (n + s.total - 1) / s.total
}

// batches returns the batches of the sequence.
func (s *sequence) batches() (refs []batchRef) {
	for n := 0; n*batchSize < s.count(); n++ {
		for _, special := range specialsOf(n) {
			refs = append(refs, batchRef{sequence: s, number: n, special: special})
		}
	}
	return refs
}

// ownCases are the generated cases of a number of batches.
type ownCases struct {
	number          int
	list            []cases.Case
	pairs, allPairs int
}

// source makes the batches of a sequence. It is cheap to go on in their order, and goes back to the beginning for an
// earlier one.
type source struct {
	sequence *sequence

	mu             sync.Mutex
	generator      *cases.Generator
	generatedCases int // how many cases were generated
	current        ownCases
}

// batch makes a batch, with what the model predicts of its cases.
func (s *source) batch(ref batchRef) (*batch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generator == nil || s.current.number > ref.number {
		s.generator, s.generatedCases = cases.New(s.sequence.cell.plan.o.Seed), 0
		s.current = ownCases{number: -1}
	}
	for s.current.number < ref.number {
		s.readNext()
	}
	if len(s.current.list) == 0 {
		return nil, fmt.Errorf("there is no batch %s", ref.name())
	}
	b := &batch{ref: ref, special: ref.special, pairs: s.current.pairs, allPairs: s.current.allPairs}
	return b, s.sequence.prepareBatch(b, s.current.list)
}

// readNext generates the cases of the next batches. Every sequence makes all cases, and takes its own.
func (s *source) readNext() {
	next := ownCases{number: s.current.number + 1}
	for s.generatedCases < s.sequence.cell.plan.o.Cases && len(next.list) < batchSize {
		c := s.generator.Next()
		if s.generatedCases%s.sequence.total == s.sequence.index {
			next.list = append(next.list, c)
		}
		s.generatedCases++
	}
	next.pairs, next.allPairs = s.generator.Pairs()
	s.current = next
}

// preparedCase is a case for a cell.
type preparedCase struct {
	number int
	choice cases.Choice
	// scenario has the expectations that the model predicts; bound is the same under unique names.
	scenario, bound *scenarios.Scenario
	at              place // where it is sent, and askedTarget what that is to be
	askedTarget     reports.FoundTarget
	suffix          string
	names           map[string]string
	predicted       []oracle.PredictedRequest
	// objects means that its grants are RBAC objects, and provisioned has them.
	objects     bool
	provisioned *replay.ProvisionedScenario
	// isApart means that it is sent beside other cases, by the connections of front.
	isApart bool
	front   http.RoundTripper

	sent   []sentRequest
	result verdicts.Result
}

// batch is cases that are sent one after another.
type batch struct {
	ref             batchRef
	special         string
	walks           []*walk
	cases           []*preparedCase // the parts of all walks
	pairs, allPairs int
	observations    [2]*server.BatchObservations // by server
	// balancer is that of balanced, which has had so many turns; watched means that the request before was a watch.
	balancer     *balancer.Balancer
	turns        int
	lastWasWatch bool
}

// predict returns a scenario with what the model predicts of it.
func (s *sequence) predict(bare *scenarios.Scenario, f scenarios.Facts) (*scenarios.Scenario, []oracle.PredictedRequest, error) {
	out := cases.WithoutExpectations(bare)
	out.Requires.Gate = f.Gate
	predictions, err := oracle.Play(out, f, fixtures.FS)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: the model: %w", bare.ID, err)
	}
	s.fillIn(out, predictions)
	return out, predictions, nil
}

// fillIn fills in what the model predicts.
func (s *sequence) fillIn(scenario *scenarios.Scenario, predictions []oracle.PredictedRequest) {
	for _, p := range predictions {
		scenario.Steps[p.Step].Expect = p.Prediction.Expect()
	}
	if tamper := s.cell.plan.o.tamper; tamper != nil {
		tamper(scenario)
	}
}

func (s *sequence) prepareBatch(b *batch, batchCases []cases.Case) (err error) {
	for _, c := range batchCases {
		w := s.walk(withLastRequests(c, b.special), b)
		for _, p := range w.parts {
			p.number, p.choice = c.Number, c.Choice
			if p.scenario, p.predicted, err = s.predict(p.scenario, p.askedTarget.Facts); err != nil {
				return err
			}
			p.bind(s.suffixOf(c.Number, b.ref.isRepeat))
			isShare := c.Number%rbacShare == 0 && b.special == ""
			p.objects = isShare && canBeObjects(p.bound)
			p.isApart = b.special == crowded && isApart(p.bound)
		}
		b.walks, b.cases = append(b.walks, w), append(b.cases, w.parts...)
	}
	return nil
}

// suffixOf returns what the names of a case end with.
func (s *sequence) suffixOf(number int, isRepeat bool) string {
	parts := []string{s.cell.options.Cell.Name, strconv.Itoa(number)}
	if isRepeat {
		parts = append(parts, "again")
	}
	return scenarios.Suffix(s.cell.plan.o.Seed, parts...)
}

// withLastRequests returns a case that sends its last request again, as a special batch has it. The case itself is not
// changed.
func withLastRequests(c cases.Case, special string) cases.Case {
	s := *c.Scenario
	last := s.Steps[len(s.Steps)-1]
	var more []scenarios.Step
	switch special {
	case expired:
		more = []scenarios.Step{{Wait: scenarios.Duration(expiry)}, last}
	case edgedSuffix:
		more = slices.Repeat([]scenarios.Step{{Wait: scenarios.Duration(remembered)}, last}, edges)
	case reloaded:
		more = []scenarios.Step{last}
	case flippedSuffix:
		more = slices.Repeat([]scenarios.Step{last}, flips)
	}
	s.Steps = slices.Concat(s.Steps, more)
	c.Scenario = &s
	return c
}

func (p *preparedCase) bind(suffix string) {
	p.suffix = suffix
	p.bound, p.names = p.scenario.Bind(suffix)
}

// counts reports whether the target of a case counts impersonations in its metrics.
func (p *preparedCase) counts() bool {
	return slices.Contains(p.askedTarget.Facts.Capabilities, scenarios.Metrics)
}

// canBeObjects reports whether the grants of a scenario can be RBAC objects that touch no other, and whose changes can be
// seen: not where the rule that shows them is on an extra key without a name, which no resource of a rule matches.
func canBeObjects(bound *scenarios.Scenario) bool {
	return cases.IsUnique(bound) && !slices.ContainsFunc(scenarios.RenderRBAC(bound), func(o scenarios.RBACObject) bool {
		isShared := o.Grant != "" && !o.Exclusive
		return isShared || isKeyWithoutName(o.Grants[0].Resources)
	})
}

func isKeyWithoutName(resources []string) bool {
	return len(resources) > 0 && strings.HasSuffix(resources[0], "/")
}

// emptyEvidence returns what is known of a case before anything was sent.
func (s *sequence) emptyEvidence(p *preparedCase) *verdicts.Evidence {
	return &verdicts.Evidence{
		Scenario: p.scenario.ID, Cell: p.askedTarget.Cell, Capabilities: p.askedTarget.Facts.Capabilities,
		Suffix: p.suffix, Names: p.names, Authorizer: !p.objects,
	}
}

func countRequests(s *scenarios.Scenario) (n int) {
	for _, st := range s.Steps {
		if st.Request != nil {
			n++
		}
	}
	return n
}
