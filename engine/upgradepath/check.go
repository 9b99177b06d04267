package upgradepath

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/authzconf/authzconf/engine/matrix"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// Load reads a path file. It is strict; an error names file, line and column.
func Load(name string, data []byte) (*Path, error) {
	p := &Path{Name: strings.TrimSuffix(path.Base(name), path.Ext(name))}
	file, err := scenarios.Decode(name, data, "an upgrade path", p)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(p.Description) == "" {
		return nil, fmt.Errorf("%s: description is missing (expected what the path shows)", file.At("$.description"))
	}
	for _, e := range file.Renamed() {
		p.Note = e.Error()
	}
	return p, p.check(file.At("$.stages"), func(stage int) string {
		return file.At(fmt.Sprintf("$.stages[%d]", stage)) + fmt.Sprintf(": stage %d", stage+1)
	})
}

// check holds a path to what is possible, before anything is started. whole is
// where the path is written, at where a stage is.
func (p *Path) check(whole string, at func(stage int) string) error {
	if len(p.Stages) < 2 {
		return fmt.Errorf("%s: a path has two stages at least, this one has %d", whole, len(p.Stages))
	}
	if p.Direct && p.HighAvailability {
		return fmt.Errorf("%s: direct and highAvailability exclude each other: high availability is a balancer", whole)
	}
	var errs []error
	made := map[string]int{}
	for i, stage := range p.Stages {
		for _, setup := range stage.Make {
			switch first, twice := made[setup]; {
			case twice:
				errs = append(errs, fmt.Errorf("%s: the setup %s is made on stage %d already", at(i), setup, first+1))
			case !p.TakesPart(setup):
				errs = append(errs, fmt.Errorf("%s: the setup %s is made here and is none of setups", at(i), setup))
			}
			made[setup] = i
		}
		if err := p.checkStage(i, stage); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", at(i), err))
		}
	}
	return errors.Join(errs...)
}

func (p *Path) checkStage(i int, stage Stage) error {
	if stage.Kubernetes == "" {
		return errors.New("kubernetes is missing (expected a version such as 1.36)")
	}
	gate := stage.Gate
	stage.Gate = "" // what the matrix says of a gate is about its flag
	o, err := stage.target(i, matrix.Matrix{Provider: target.Local})
	if err != nil {
		return plain(err)
	}
	asked := target.Asked(cmp.Or(gate, string(target.AskDefault)))
	if !slices.Contains([]target.Asked{target.AskOn, target.AskOff, target.AskDefault}, asked) {
		return fmt.Errorf("gate %q is none of on, off, default", gate)
	}
	if asked != target.AskDefault && !target.GateKnown(o.Effective()) {
		return fmt.Errorf("Kubernetes %s has no feature gate %s, which came with 1.35: leave the gate out", o.Effective(), target.GateName)
	}
	stage.Gate, o.Cell.Gate = gate, string(asked)
	if stage.Chain != "" {
		if _, err := fs.Stat(fixtures.FS, "chains/"+stage.Chain+".yaml"); err != nil {
			return fmt.Errorf("there is no authorizer chain %q in fixtures/chains", stage.Chain)
		}
	}
	if stage.Fault != "" && !slices.Contains(Faults(), stage.Fault) {
		return fmt.Errorf("fault %q is none of %v", stage.Fault, Faults())
	}
	if stage.Fault == WebhookDown && !strings.Contains(stage.Chain, "webhook") {
		return fmt.Errorf("the fault %s needs an authorizer chain with a webhook, such as webhook-first", stage.Fault)
	}
	if i == 0 {
		if stage.Fault != "" {
			return fmt.Errorf("the fault %s needs a stage before it", stage.Fault)
		}
		return nil
	}
	before, err := p.Stages[i-1].target(i-1, matrix.Matrix{Provider: target.Local})
	if err != nil {
		return nil //nolint:nilerr // said of that stage
	}
	if same(o, before) && stage.Fault == "" {
		return fmt.Errorf("%s is what stage %d is: a stage has to change something", stage, i)
	}
	after, since := version.MustParseGeneric(o.Release.Version).Minor(), version.MustParseGeneric(before.Release.Version).Minor()
	if p.HighAvailability && max(after, since)-min(after, since) > 1 {
		return fmt.Errorf("from %s to %s in one step: API servers that run side by side may differ by one minor version", p.Stages[i-1].Kubernetes, stage.Kubernetes)
	}
	if p.HighAvailability && stage.Fault == RestartEtcd {
		return fmt.Errorf("the fault %s is for one API server", stage.Fault)
	}
	return nil
}

// same tells whether two stages are the same server. That the gate is set to what
// it is by default is a change: of the command line.
func same(a, b target.Options) bool {
	return a.Release == b.Release && a.Cell.Emulated == b.Cell.Emulated && a.Cell.Gate == b.Cell.Gate && a.Chain == b.Chain
}

// plain is an error without its hint on a line of its own.
func plain(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}
