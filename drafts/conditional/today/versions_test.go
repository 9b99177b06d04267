package today

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/authzconf/authzconf/engine/server"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// converter is the conversion webhook of things. In v1 the color is spec.color, in v2 it is spec.paint.color.
type converter struct{ broken atomic.Bool }

func (v *converter) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var review map[string]any
	raw, err := io.ReadAll(io.LimitReader(req.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(raw, &review)
	}
	asked, isReview := review["request"].(map[string]any)
	if err != nil || !isReview {
		http.Error(w, "the body is not a ConversionReview with a request", http.StatusBadRequest)
		return
	}
	objects, _ := asked["objects"].([]any)
	to, _ := asked["desiredAPIVersion"].(string)
	answer := map[string]any{"uid": asked["uid"], "result": map[string]any{"status": "Success"}, "convertedObjects": []any{}}
	for _, o := range objects {
		answer["convertedObjects"] = append(answer["convertedObjects"].([]any), convertThing(o.(map[string]any), to))
	}
	if v.broken.Load() {
		answer = map[string]any{"uid": asked["uid"], "result": map[string]any{"status": "Failure", "message": "the conversion is broken"}}
	}
	delete(review, "request")
	review["response"] = answer
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// convertThing is a thing in another version.
func convertThing(o map[string]any, to string) map[string]any {
	color, spec := "", map[string]any{}
	if from, isSpec := o["spec"].(map[string]any); isSpec {
		color, _ = from["color"].(string)
		if paint, isPaint := from["paint"].(map[string]any); isPaint {
			color, _ = paint["color"].(string)
		}
	}
	switch {
	case color == "":
	case strings.HasSuffix(to, "/v1"):
		spec["color"] = color
	default:
		spec["paint"] = map[string]any{"color": color}
	}
	return map[string]any{"apiVersion": to, "kind": o["kind"], "metadata": o["metadata"], "spec": spec}
}

// thing returns a thing in a version.
func thing(version, name, color string) map[string]any {
	o := map[string]any{"kind": "Thing", "metadata": map[string]any{"name": name}, "spec": map[string]any{"color": color}}
	return convertThing(o, "example.com/"+version)
}

func thingsPath(version string) string {
	return "/apis/example.com/" + version + "/namespaces/default/things"
}

// thingSchema returns the schema of a version whose spec has these fields.
func thingSchema(spec map[string]any) map[string]any {
	object := func(properties map[string]any) map[string]any {
		return map[string]any{"type": "object", "properties": properties}
	}
	return map[string]any{"openAPIV3Schema": object(map[string]any{"spec": object(spec)})}
}

// defineThings creates a custom resource with two versions that is stored as v2, and waits until both are served.
func (c *Cluster) defineThings(t *testing.T) *converter {
	t.Helper()
	v := &converter{}
	hook, err := server.ServeLoopback(t.Context(), v, nil) // the API server has no client certificate for conversion webhooks
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hook.Close() })
	text := map[string]any{"type": "string"}
	paint := map[string]any{"type": "object", "properties": map[string]any{"color": text}}
	err = c.Make(t.Context(), Made{definitionsPath, map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": "things.example.com"},
		"spec": map[string]any{
			"group": "example.com",
			"scope": "Namespaced",
			"names": map[string]any{"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
			"versions": []any{
				map[string]any{"name": "v1", "served": true, "storage": false, "schema": thingSchema(map[string]any{"color": text})},
				map[string]any{"name": "v2", "served": true, "storage": true, "schema": thingSchema(map[string]any{"paint": paint})},
			},
			"conversion": map[string]any{"strategy": "Webhook", "webhook": map[string]any{
				"conversionReviewVersions": []string{"v1"},
				"clientConfig":             map[string]any{"url": hook.URL + "/", "caBundle": base64.StdEncoding.EncodeToString(hook.CA)},
			}},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1", "v2"} {
		c.waitForCode(t, version+" is served", http.StatusCreated, func(ctx context.Context) (Response, error) {
			return c.Send(ctx, nil, http.MethodPost, thingsPath(version)+"?dryRun=All", "", thing(version, "probe", "blue"))
		})
	}
	return v
}

// waitForCode waits until a request is answered with a code.
func (c *Cluster) waitForCode(t *testing.T, what string, code int, send func(context.Context) (Response, error)) {
	t.Helper()
	var last Response
	err := until(t.Context(), what, func(ctx context.Context) (_ bool, err error) {
		last, err = send(ctx)
		return last.Code == code, err
	})
	if err != nil {
		t.Fatalf("%v, but %d %s", err, last.Code, last.Status())
	}
}

// thingsPolicy creates a policy about things whose names begin with the policy's name, and waits until it refuses a red
// thing.
func (c *Cluster) thingsPolicy(t *testing.T, name, match, failure string, versions []string, validation map[string]any) {
	t.Helper()
	rule := map[string]any{
		"apiGroups":   []string{"example.com"},
		"apiVersions": versions,
		"resources":   []string{"things"},
		"operations":  []string{"CREATE", "UPDATE"},
	}
	c.bindPolicy(t, name, map[string]any{
		"failurePolicy": failure, "matchConstraints": map[string]any{"matchPolicy": match, "resourceRules": []any{rule}},
		"matchConditions": []any{map[string]any{"name": "named", "expression": fmt.Sprintf("request.name.startsWith('%s-')", name)}},
		"validations":     []any{validation},
	})
	c.waitForCode(t, "the policy "+name+" is in force", http.StatusUnprocessableEntity, func(ctx context.Context) (Response, error) {
		return c.Send(ctx, nil, http.MethodPost, thingsPath(versions[0])+"?dryRun=All", "", thing(versions[0], name+"-probe", "red"))
	})
}

// TestVersions checks which versions of a custom resource a ValidatingAdmissionPolicy sees. The text leaves that
// question open (section "Authorizer requirements": "See what happens for a CRD + VAP, if the request version !=
// storage version, or if the CRD schema changes").
func TestVersions(t *testing.T) {
	c := startForTest(t, StartOptions{})
	conversions := c.defineThings(t)
	notRed := map[string]any{"expression": "object.spec.color != 'red'"}
	told := map[string]any{
		"expression":        "oldObject == null && request.name.endsWith('-made')", // such an object can be created, so that it can be updated later
		"messageExpression": "'object ' + object.apiVersion + ', old ' + (oldObject == null ? 'none' : oldObject.apiVersion) + ', kind ' + request.kind.version + ', request ' + request.requestKind.version",
	}
	c.thingsPolicy(t, "both", "Equivalent", "Fail", []string{"v1", "v2"}, told)
	c.thingsPolicy(t, "first", "Equivalent", "Fail", []string{"v1"}, told)
	c.thingsPolicy(t, "equivalent", "Equivalent", "Fail", []string{"v1"}, notRed)
	c.thingsPolicy(t, "exact", "Exact", "Fail", []string{"v1"}, notRed)
	c.thingsPolicy(t, "ignoring", "Equivalent", "Ignore", []string{"v1"}, notRed)
	t.Run("which version policies see", func(t *testing.T) { policiesSeeVersions(t, c) })
	t.Run("the conversion is broken", func(t *testing.T) {
		conversions.broken.Store(true)
		defer conversions.broken.Store(false)
		conversionIsBroken(t, c)
	})
	t.Run("the schema changes", func(t *testing.T) { schemaChanges(t, c) })
}

// thingStep is a write of a thing, with the expected answer.
type thingStep struct {
	why, version, name, color string
	code                      int
	message                   string
}

// play creates the thing by POST, or changes its color by PATCH.
func (step thingStep) play(t *testing.T, c *Cluster, method string) {
	t.Helper()
	path, contentType := thingsPath(step.version), ""
	if method == http.MethodPatch {
		path, contentType = path+"/"+step.name, patchTypes["merge"]
	}
	r, err := c.Send(t.Context(), nil, method, path, contentType, thing(step.version, step.name, step.color))
	if err != nil || r.Code != step.code || !strings.Contains(r.Status(), step.message) {
		t.Errorf(
			"%s: %s of %s %s: code %d (%s), %v; want %d, %q",
			step.why,
			method,
			step.version,
			step.name,
			r.Code,
			r.Status(),
			err,
			step.code,
			step.message,
		)
	}
}

// policiesSeeVersions checks that both objects have the version of the rule that matched: the version of the request,
// if a rule names it.
func policiesSeeVersions(t *testing.T, c *Cluster) {
	for _, step := range []thingStep{
		{"its own version", "v1", "both-a", "red", http.StatusUnprocessableEntity, "object example.com/v1, old none, kind v1, request v1"},
		{"its own version", "v2", "both-a", "red", http.StatusUnprocessableEntity, "object example.com/v2, old none, kind v2, request v2"},
		{"converted to that of the rule", "v2", "first-a", "red", http.StatusUnprocessableEntity, "object example.com/v1, old none, kind v1, request v2"},
		{"refused after conversion", "v2", "equivalent-a", "red", http.StatusUnprocessableEntity, "failed expression: object.spec.color"},
		{"allowed after conversion", "v2", "equivalent-a", "blue", http.StatusCreated, ""},
		{"something to update", "v1", "both-made", "blue", http.StatusCreated, ""},
		{"something to update", "v1", "first-made", "blue", http.StatusCreated, ""},
		{"refused in the version of the rule", "v1", "exact-a", "red", http.StatusUnprocessableEntity, "failed expression: object.spec.color"},
		{"another version is the way around an exact rule", "v2", "exact-a", "red", http.StatusCreated, ""},
	} {
		step.play(t, c, http.MethodPost)
	}
	for _, step := range []thingStep{
		{"what is stored as v2, in the version of the request", "v1", "both-made", "red", http.StatusUnprocessableEntity, "object example.com/v1, old example.com/v1, kind v1, request v1"},
		{"in that of the rule", "v2", "first-made", "red", http.StatusUnprocessableEntity, "object example.com/v1, old example.com/v1, kind v1, request v2"},
		{"refused in the version of the request", "v1", "equivalent-a", "red", http.StatusUnprocessableEntity, "failed expression: object.spec.color"},
		{"what came around the exact rule is judged when it is sent as the rule has it", "v1", "exact-a", "red", http.StatusUnprocessableEntity, "failed expression: object.spec.color"},
	} {
		step.play(t, c, http.MethodPatch)
	}
}

// conversionIsBroken checks that a request in the stored version needs a conversion only for a policy, even if the
// policy's match conditions do not match it. A policy that fails then refuses all requests. A policy that ignores
// failures ignores this failure, too.
func conversionIsBroken(t *testing.T, c *Cluster) {
	thingStep{
		"no match condition is about it",
		"v2",
		"other-a",
		"blue",
		http.StatusUnprocessableEntity,
		"failed to convert object version",
	}.play(
		t,
		c,
		http.MethodPost,
	)
	thingStep{
		"the request itself needs one",
		"v1",
		"other-b",
		"blue",
		http.StatusInternalServerError,
		"the conversion is broken",
	}.play(
		t,
		c,
		http.MethodPost,
	)
	for _, name := range []string{"first", "equivalent"} {
		r, err := c.Send(t.Context(), nil, http.MethodDelete, webhooksPath+"validatingadmissionpolicybindings/"+name, "", nil)
		if err != nil || r.Code != http.StatusOK {
			t.Fatalf("the policy %s cannot be taken away: %d %s, %v", name, r.Code, r.Status(), err)
		}
	}
	c.waitForCode(
		t,
		"only the policy that ignores failures needs a conversion",
		http.StatusCreated,
		func(ctx context.Context) (Response, error) {
			return c.Send(ctx, nil, http.MethodPost, thingsPath("v2")+"?dryRun=All", "", thing("v2", "other-a", "blue"))
		},
	)
	thingStep{"what the policy refuses while it can convert", "v2", "ignoring-a", "red", http.StatusCreated, ""}.play(t, c, http.MethodPost)
}

// schemaChanges checks that a policy no longer sees a field that is removed from the schema. The policy then fails, or
// ignores the failure.
func schemaChanges(t *testing.T, c *Cluster) {
	c.thingsPolicy(t, "failing", "Equivalent", "Fail", []string{"v1"}, map[string]any{"expression": "object.spec.color != 'red'"})
	thingStep{
		"the field is there",
		"v1",
		"ignoring-b",
		"red",
		http.StatusUnprocessableEntity,
		"failed expression: object.spec.color",
	}.play(
		t,
		c,
		http.MethodPost,
	)
	replaced := []any{
		map[string]any{
			"op":    "replace",
			"path":  "/spec/versions/0/schema",
			"value": thingSchema(map[string]any{"colour": map[string]any{"type": "string"}}),
		},
	}
	r, err := c.Send(t.Context(), nil, http.MethodPatch, definitionsPath+"/things.example.com", "application/json-patch+json", replaced)
	if err != nil || r.Code != http.StatusOK {
		t.Fatalf("the schema cannot be changed: %d %s, %v", r.Code, r.Status(), err)
	}
	c.waitForCode(t, "the new schema is in force", http.StatusCreated, func(ctx context.Context) (Response, error) {
		return c.Send(ctx, nil, http.MethodPost, thingsPath("v1")+"?dryRun=All", "", thing("v1", "ignoring-b", "red"))
	})
	for _, step := range []thingStep{
		{"the policy fails, for what it allowed as well", "v1", "failing-c", "blue", http.StatusUnprocessableEntity, "no such key: color"},
		{"the policy ignores that, for what it refused as well", "v1", "ignoring-c", "red", http.StatusCreated, ""},
	} {
		step.play(t, c, http.MethodPost)
	}
}

// autoscaler returns a HorizontalPodAutoscaler. Only v1 has the field for utilization.
func autoscaler(version, name string, utilization int) map[string]any {
	spec := map[string]any{"maxReplicas": 2, "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}
	if version == "v1" {
		spec["targetCPUUtilizationPercentage"] = utilization
	}
	return map[string]any{
		"apiVersion": "autoscaling/" + version,
		"kind":       "HorizontalPodAutoscaler",
		"metadata":   map[string]any{"name": name},
		"spec":       spec,
	}
}

// TestPolicyOfOneVersion checks what the text says: a ValidatingAdmissionPolicy is rejected if its expressions do not
// compile for every version of a resource (section "Authorizer requirements"). In fact an API server accepts a policy
// whose expression is right for one version only. Requests of the other version then fail, or are not judged. The API
// server rejects only an expression that is wrong for every request.
func TestPolicyOfOneVersion(t *testing.T) {
	c := startForTest(t, StartOptions{})
	for expression, code := range map[string]int{
		"object.spec.targetCPUUtilizationPercentage <= 80": http.StatusCreated, // of v1 alone
		"object.spec.noVersionHasThis == 1":                http.StatusCreated,
		"object.spec.(":                                    http.StatusUnprocessableEntity,
		"request.noRequestHasThis == 1":                    http.StatusUnprocessableEntity,
	} {
		r, err := c.Send(t.Context(), nil, http.MethodPost, webhooksPath+"validatingadmissionpolicies?dryRun=All", "", map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1",
			"kind":       "ValidatingAdmissionPolicy",
			"metadata":   map[string]any{"name": "any"},
			"spec":       autoscalerPolicy("Fail", expression),
		})
		if err != nil || r.Code != code {
			t.Errorf("a policy with %s is answered %d (%s), %v; want %d", expression, r.Code, r.Status(), err, code)
		}
	}
	for failure, otherVersion := range map[string]int{"Fail": http.StatusUnprocessableEntity, "Ignore": http.StatusCreated} {
		t.Run(failure, func(t *testing.T) { c.tryPolicyOfV1(t, failure, otherVersion) })
	}
}

// tryPolicyOfV1 binds a policy whose expression only v1 of autoscalers can fulfil, and sends autoscalers of both versions.
// otherVersion is the code that one of v2 must get.
func (c *Cluster) tryPolicyOfV1(t *testing.T, failure string, otherVersion int) {
	t.Helper()
	name := strings.ToLower(failure)
	send := func(ctx context.Context, version string, utilization int) (Response, error) {
		path := "/apis/autoscaling/" + version + "/namespaces/default/horizontalpodautoscalers?dryRun=All"
		return c.Send(ctx, nil, http.MethodPost, path, "", autoscaler(version, name, utilization))
	}
	c.bindPolicy(t, name, autoscalerPolicy(failure, "object.spec.targetCPUUtilizationPercentage <= 80"))
	c.waitForCode(
		t,
		"the policy "+name+" is in force",
		http.StatusUnprocessableEntity,
		func(ctx context.Context) (Response, error) { return send(ctx, "v1", 90) },
	)
	for _, step := range []struct {
		version     string
		utilization int
		code        int
		message     string
	}{
		{"v1", 70, http.StatusCreated, ""},
		{"v1", 90, http.StatusUnprocessableEntity, "failed expression"},
		{"v2", 0, otherVersion, ""},
	} {
		r, err := send(t.Context(), step.version, step.utilization)
		if err != nil || r.Code != step.code || !strings.Contains(r.Status(), step.message) {
			t.Errorf("%s, %d: code %d (%s), %v; want %d", step.version, step.utilization, r.Code, r.Status(), err, step.code)
		}
	}
}

// autoscalerPolicy returns the spec of a ValidatingAdmissionPolicy for autoscalers of both versions that have the name of
// its failure policy.
func autoscalerPolicy(failure, expression string) map[string]any {
	rule := map[string]any{
		"apiGroups":   []string{"autoscaling"},
		"apiVersions": []string{"v1", "v2"},
		"resources":   []string{"horizontalpodautoscalers"},
		"operations":  []string{"*"},
	}
	return map[string]any{
		"failurePolicy":    failure,
		"matchConstraints": map[string]any{"resourceRules": []any{rule}},
		"matchConditions": []any{
			map[string]any{"name": "named", "expression": fmt.Sprintf("request.name == '%s'", strings.ToLower(failure))},
		},
		"validations": []any{map[string]any{"expression": expression}},
	}
}
