package oracle

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// noticed tells whether any embedded scenario disagrees with the model on a
// server that is changed first, and with predictions that are changed after.
func noticed(t *testing.T, server func(*Server), step func(*Server), prediction func(*Prediction)) bool {
	t.Helper()
	for _, s := range loadAll(t).All() {
		for _, gate := range []scenarios.Gate{scenarios.GateOn, scenarios.GateOff} {
			f := scenarios.Facts{
				Kubernetes:   "1.37",
				Binary:       "1.37",
				Gate:         gate,
				Chain:        s.Requires.Chain,
				Capabilities: scenarios.AllCapabilities(),
			}
			if ok, _, _ := s.Selected(f); !ok {
				continue
			}
			sv, err := ServerFor(s, f, fixtures.FS)
			if err != nil {
				t.Fatal(err)
			}
			server(sv)
			played, err := playSteps(s, sv, step, fixtures.FS)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range played {
				prediction(&r.Prediction)
				if r.Expect != nil && len(r.Prediction.Compare(r.Expect)) > 0 {
					return true
				}
			}
		}
	}
	return false
}

// TestMutations proves that agreement means something: a wrong prediction, or a
// model that is wrong in one respect, does not agree with the scenarios.
func TestMutations(t *testing.T) {
	nothing, same := func(*Server) {}, func(*Prediction) {}
	if noticed(t, nothing, nothing, same) {
		t.Fatal("without a mutation there must be no difference")
	}
	first := func(p *Prediction) *Review { return &p.Segments[0].Runs[0][0] }
	some := func(p *Prediction) bool { return len(p.Segments) > 0 }
	predictions := map[string]func(*Prediction){
		"allowed for forbidden": func(p *Prediction) { p.Outcome = scenarios.Allowed },
		"another code":          func(p *Prediction) { p.Code++ },
		"a longer message":      func(p *Prediction) { p.Messages = append(slices.Clone(p.Messages), "no") },
		"a group less":          func(p *Prediction) { drop(&p.User) },
		"nobody impersonated":   func(p *Prediction) { p.User = nil },
		"an attempt less":       func(p *Prediction) { p.Attempts = nil },
		"a review less":         func(p *Prediction) { p.Segments = p.Segments[:max(0, len(p.Segments)-1)] },
		"reviews the other way": func(p *Prediction) { p.Segments = slices.Clone(p.Segments); slices.Reverse(p.Segments) },
		"another decision": func(p *Prediction) {
			if some(p) {
				first(p).Answer.Decision = scenarios.Deny
			}
		},
		"another subject": func(p *Prediction) {
			if some(p) {
				first(p).Spec.User = "eve"
			}
		},
		"another mode is counted": func(p *Prediction) {
			if some(p) && first(p).Mode != "" {
				first(p).Mode = "other"
			}
		},
		"the requestor's extra": func(p *Prediction) {
			if some(p) {
				first(p).Spec.Extra = nil
			}
		},
		"a review nobody asked": func(p *Prediction) {
			if some(p) {
				p.Segments = append(p.Segments, p.Segments[0])
			}
		},
	}
	for i := range reflect.TypeFor[scenarios.AuditExpect]().NumField() {
		field := reflect.TypeFor[scenarios.AuditExpect]().Field(i)
		predictions["no "+field.Name+" in the audit event"] = func(p *Prediction) {
			reflect.ValueOf(&p.Audit).Elem().Field(i).Set(reflect.New(field.Type.Elem()))
		}
	}
	for name, mutate := range predictions {
		t.Run(name, func(t *testing.T) {
			if !noticed(t, nothing, nothing, mutate) {
				t.Error("no scenario notices")
			}
		})
	}
	servers := map[string]struct{ server, step func(*Server) }{
		"nothing is cached":       {nothing, func(s *Server) { clear(s.memory.outer); clear(s.memory.inner) }},
		"no inner cache":          {nothing, func(s *Server) { clear(s.memory.inner) }},
		"no outer cache":          {nothing, func(s *Server) { clear(s.memory.outer) }},
		"caches never expire":     {nothing, func(s *Server) { s.memory.now = 0 }},
		"caches expire early":     {nothing, func(s *Server) { s.Advance(9 * time.Second) }},
		"the index is cleared":    {nothing, func(s *Server) { s.memory.index = newMemory().index }},
		"the gate is the other":   {switchGate, nothing},
		"an older binary":         {func(s *Server) { s.binary-- }, nothing},
		"no grants":               {func(s *Server) { s.grants = nil }, nothing},
		"no Node authorizer":      {func(s *Server) { s.chain = slices.Delete(slices.Clone(s.chain), 1, 2) }, nothing},
		"nothing passes unasked":  {func(s *Server) { s.chain = s.chain[1:] }, nothing},
		"bindings always resolve": {func(s *Server) { s.policy.dangling = nil }, nothing},
	}
	for name, m := range servers {
		t.Run(name, func(t *testing.T) {
			if !noticed(t, m.server, m.step, same) {
				t.Error("no scenario notices")
			}
		})
	}
}

// drop takes the last group of a user away.
func drop(u **scenarios.User) {
	if *u == nil {
		return
	}
	v := **u
	v.Groups = v.Groups[:max(0, len(v.Groups)-1)]
	*u = &v
}

// switchGate gives a server the other state of the gate.
func switchGate(s *Server) {
	if s.isGateOn() {
		s.gate = scenarios.GateOff
		return
	}
	s.gate = scenarios.GateOn
}
