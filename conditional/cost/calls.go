package cost

import (
	"context"
	"errors"
	"fmt"

	"github.com/authzconf/authzconf/conditional/reference"
	"github.com/authzconf/authzconf/conditional/vectors"
)

// Calls are the webhooks called for one request, on average.
type Calls struct {
	Enforcement string  `json:"enforcement"`
	Cached      bool    `json:"cached"`
	Reviews     float64 `json:"reviews"`
	Evaluations float64 `json:"evaluations"`
}

// The three ways to enforce a condition.
const (
	byWebhook = "KEP, type not supported by builtin"
	byBuiltin = "KEP, type supported by builtin"
	byToday   = "today, over-grant and admission webhook"
)

// costUser is who sends what is counted and measured.
const costUser = "cost"

// allowed is the KEP's condition of a PersistentVolume, which volume satisfies.
const allowed = `object.spec.storageClassName == "dev"`

// expressions are those that are measured. volume satisfies none of them: the API server observes how long a
// policy took only if it has failed.
var expressions = []struct{ name, text string }{
	{"storage-class", `object.spec.storageClassName == "gold"`},
	{"all-finalizers", `object.metadata.finalizers.all(f, f != "example.com/9")`},
}

// volume is what is created, with ten finalizers.
func volume() map[string]any {
	finalizers := make([]any, 10)
	for i := range finalizers {
		finalizers[i] = fmt.Sprintf("example.com/%d", i)
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolume", "metadata": map[string]any{"generateName": "cost-", "finalizers": finalizers},
		"spec": map[string]any{"storageClassName": "dev", "capacity": map[string]any{"storage": "1Gi"}, "accessModes": []any{"ReadWriteOnce"}, "hostPath": map[string]any{"path": "/tmp"}},
	}
}

const volumesPath = "/api/v1/persistentvolumes?dryRun=All"

// costPolicies let the user create such volumes.
func costPolicies() (*reference.Snapshot, error) {
	return reference.NewSnapshot([]vectors.Policy{{
		ID: "cost", Effect: vectors.Allow,
		Expression: fmt.Sprintf(`request.userInfo.username == %q && request.resource == "persistentvolumes" && request.verb == "create" && %s`, costUser, allowed),
	}})
}

// KEPCalls counts the four cells of the KEP's table of webhooks (section "Built-in CEL conditions evaluator"),
// each by n requests behind a first one.
func KEPCalls(ctx context.Context, n int) (out []Calls, err error) {
	s, err := costPolicies()
	if err != nil {
		return nil, err
	}
	for _, builtin := range []bool{false, true} {
		a := reference.New(s)
		if !builtin {
			a.Type = reference.TypeOwn
		}
		c, err := serveCounted(a)
		if err != nil {
			return nil, err
		}
		for _, cached := range []bool{false, true} {
			e := &Enforcer{Cached: cached, Builtin: true, access: c.access, conditions: c.second}
			var reviews, conditions int64
			for i := range n + 1 {
				if i == 1 {
					reviews, conditions = c.reviews.Load(), c.conditions.Load()
				}
				got, err := e.Request(ctx, specOf(costUser, "create", "persistentvolumes"), vectors.ConditionData{Operation: "CREATE", Object: volume()})
				if err == nil && got != vectors.Allow {
					err = fmt.Errorf("the request is %s", got)
				}
				if err != nil {
					return nil, errors.Join(err, c.close())
				}
			}
			row := Calls{Enforcement: byWebhook, Cached: cached, Reviews: per(c.reviews.Load()-reviews, n), Evaluations: per(c.conditions.Load()-conditions, n)}
			if builtin {
				row.Enforcement = byBuiltin
			}
			out = append(out, row)
		}
		if err := c.close(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// TodayCalls counts the same of a real API server.
func (c *Cluster) TodayCalls(ctx context.Context, n int, cached bool) (out Calls, err error) {
	var reviews, judged int64
	for i := range n + 1 {
		if i == 1 {
			reviews, judged = c.Reviewed.Load(), c.Judged.Load()
		}
		if _, err := c.create(ctx, &User{Name: costUser}); err != nil {
			return out, err
		}
	}
	return Calls{byToday, cached, per(c.Reviewed.Load()-reviews, n), per(c.Judged.Load()-judged, n)}, nil
}

func per(count int64, n int) float64 { return float64(count) / float64(n) }
