package library

import (
	"reflect"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// count returns an authorizer whose decisions are counted as kube-apiserver counts the decisions of its authorizers.
func count(name string, a authorizer.Authorizer) authorizer.Authorizer {
	return metrics.InstrumentedAuthorizer("Webhook", name, a)
}

// counted reads apiserver_authorization_decisions_total by authorizer and decision.
func counted(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "apiserver_authorization_decisions_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			out[labels["name"]+" "+labels["decision"]] = m.GetCounter().GetValue()
		}
	}
	return out
}

// conditional is an authorizer with one condition that has a value for each object.
func conditional(name string, effect vectors.Decision, perObject ...vectors.Truth) vectors.Authorizer {
	return vectors.Authorizer{
		Name:        name,
		Decision:    vectors.Conditional,
		FailureMode: vectors.FailDeny,
		Conditions: []vectors.EvaluatedCondition{{
			Condition: vectors.Condition{ID: "example.com/a", Effect: effect, Type: "example.com/t", Condition: "x"}, PerObject: perObject,
		}},
	}
}

// TestMetrics checks how the decisions of authorizers are counted. A conditional decision is counted as conditional,
// and for each object again as the decision to which its conditions evaluate. NoOpinion is not counted in either phase.
func TestMetrics(t *testing.T) {
	allow := vectors.Authorizer{Name: "b", Decision: vectors.Allow}
	cannot := conditional("a", vectors.Deny, vectors.False)
	cannot.Cannot = true
	for _, c := range []struct {
		name  string
		chain []vectors.Authorizer
		mode  string
		want  map[string]float64
	}{
		{"allowed", []vectors.Authorizer{{Name: "a", Decision: vectors.Allow}}, "", map[string]float64{"a allowed": 1}},
		{"denied", []vectors.Authorizer{{Name: "a", Decision: vectors.Deny}}, "", map[string]float64{"a denied": 1}},
		{"no opinion, and the next allows", []vectors.Authorizer{{Name: "a", Decision: vectors.NoOpinion}, allow}, "", map[string]float64{"b allowed": 1}},
		{"a condition that allows", []vectors.Authorizer{conditional("a", vectors.Allow, vectors.True)}, "", map[string]float64{"a conditional": 1, "a allowed": 1}},
		{"a condition that does not", []vectors.Authorizer{conditional("a", vectors.Allow, vectors.False)}, "", map[string]float64{"a conditional": 1}},
		// The next authorizer was asked in the first phase. It is not asked again.
		{"a condition that does not deny, and the next allows", []vectors.Authorizer{conditional("a", vectors.Deny, vectors.False), allow}, "", map[string]float64{"a conditional": 1, "b allowed": 1}},
		{"a condition that denies, and the next would allow", []vectors.Authorizer{conditional("a", vectors.Deny, vectors.True), allow}, "", map[string]float64{"a conditional": 1, "a denied": 1, "b allowed": 1}},
		{"a condition in error", []vectors.Authorizer{conditional("a", vectors.Deny, vectors.Error), allow}, "", map[string]float64{"a conditional": 1, "a denied": 1, "b allowed": 1}},
		{"conditions that the authorizer cannot evaluate", []vectors.Authorizer{cannot, allow}, "", map[string]float64{"a conditional": 1, "a denied": 1, "b allowed": 1}},
		{"two objects", []vectors.Authorizer{conditional("a", vectors.Allow, vectors.True, vectors.True)}, "", map[string]float64{"a conditional": 1, "a allowed": 2}},
		{"conditions that nobody has asked for", []vectors.Authorizer{conditional("a", vectors.Deny, vectors.False), allow}, "None", map[string]float64{"a denied": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			metrics.ResetMetricsForTest()
			m := &vectors.APIServer{
				Chain:   c.chain,
				Objects: 1,
				Request: vectors.Request{Verb: "create", Resource: "configmaps", Mode: c.mode},
			}
			if len(c.chain[0].Conditions) > 0 {
				m.Objects = len(c.chain[0].Conditions[0].PerObject)
			}
			if _, err := observeThrough(t.Context(), m, count); err != nil {
				t.Fatal(err)
			}
			if got := counted(t); !reflect.DeepEqual(got, c.want) {
				t.Errorf("counted %v, want %v", got, c.want)
			}
		})
	}
}

// TestMetricsChangeNothing checks that an authorizer decides every vector in the same way when it is counted.
func TestMetricsChangeNothing(t *testing.T) {
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, v := range all {
		if v.APIServer == nil {
			continue
		}
		plain, err := Observe(t.Context(), v.APIServer)
		instrumented, countedErr := observeThrough(t.Context(), v.APIServer, count)
		if (err == nil) != (countedErr == nil) || !reflect.DeepEqual(plain, instrumented) {
			t.Errorf("%s: %+v, %v; counted %+v, %v", v.ID, plain, err, instrumented, countedErr)
		}
		compared++
	}
	if compared < 700 {
		t.Errorf("%d vectors are compared", compared)
	}
}
