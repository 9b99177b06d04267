package engines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/scenarios"
)

// cedarK8s answers reviews in the entity model of cedar-access-control-for-k8s, as its code of October 2025
// (internal/server/authorizer, internal/server/entities) has it. It is written after that, as no Go module of it can
// be had. The authorizer itself was asked the questions of level core, with the same seed: what it refused of the
// policy was what left-out.txt lists, as here.
type cedarK8s struct{ policies *cedar.PolicySet }

func (c cedarK8s) allowed(s spec) (bool, error) {
	if strings.HasPrefix(s.User, "system:") && !strings.HasPrefix(s.User, "system:serviceaccount:") &&
		!strings.HasPrefix(s.User, "system:node:") {
		return false, nil // it has no opinion about them
	}
	entities := cedar.EntityMap{}
	principal := principalOf(s, entities)
	verb, resource := "", cedar.Entity{UID: cedar.NewEntityUID("k8s::NonResourceURL", "")}
	if a := s.NonResourceAttributes; a != nil {
		verb, resource.UID.ID = a.Verb, cedar.String(a.Path)
		resource.Attributes = cedar.NewRecord(cedar.RecordMap{"path": cedar.String(a.Path)})
	} else if a := s.ResourceAttributes; a != nil {
		verb = a.Verb
		if resource = resourceOf(s); verb == "impersonate" {
			resource = impersonatedOf(s)
		}
	}
	entities[resource.UID] = resource // a principal with the same type and ID is replaced
	decision, diagnostic := cedar.Authorize(c.policies, entities, cedar.Request{
		Principal: principal,
		Action:    cedar.NewEntityUID("k8s::Action", cedar.String(verb)),
		Resource:  resource.UID,
		Context:   cedar.NewRecord(nil),
	})
	if len(diagnostic.Errors) > 0 {
		return false, fmt.Errorf("%v", diagnostic.Errors[0])
	}
	return decision == cedar.Allow, nil
}

// principalOf adds the user, whose ID is the uid, and the groups.
func principalOf(s spec, entities cedar.EntityMap) cedar.EntityUID {
	var groups []cedar.EntityUID
	for _, g := range s.Groups {
		uid := cedar.NewEntityUID("k8s::Group", cedar.String(g))
		entities[uid] = cedar.Entity{UID: uid, Attributes: cedar.NewRecord(cedar.RecordMap{"name": cedar.String(g)})}
		groups = append(groups, uid)
	}
	kind, attributes := cedar.EntityType("k8s::User"), cedar.RecordMap{"name": cedar.String(s.User)}
	switch parts := strings.Split(s.User, ":"); {
	case strings.HasPrefix(s.User, "system:node:") && len(parts) == 3:
		kind, attributes["name"] = "k8s::Node", cedar.String(parts[2])
	case strings.HasPrefix(s.User, "system:serviceaccount:") && len(parts) == 4:
		kind, attributes["namespace"], attributes["name"] = "k8s::ServiceAccount", cedar.String(parts[2]), cedar.String(parts[3])
	}
	uid := cedar.NewEntityUID(kind, cedar.String(s.UID))
	entities[uid] = cedar.Entity{UID: uid, Parents: cedar.NewEntityUIDSet(groups...), Attributes: cedar.NewRecord(attributes)}
	return uid
}

// resourceOf has the attributes that are not empty. Selectors are left out: no policy here looks at them.
func resourceOf(s spec) cedar.Entity {
	a := s.ResourceAttributes
	attributes := cedar.RecordMap{"apiGroup": cedar.String(a.Group), "resource": cedar.String(a.Resource)}
	for name, value := range map[cedar.String]string{"name": a.Name, "namespace": a.Namespace, "subresource": a.Subresource} {
		if value != "" {
			attributes[name] = cedar.String(value)
		}
	}
	id := path.Join("/", a.Group, a.Version, a.Namespace, a.Resource, a.Name, a.Subresource)
	return cedar.Entity{UID: cedar.NewEntityUID("k8s::Resource", cedar.String(id)), Attributes: cedar.NewRecord(attributes)}
}

// impersonatedOf is decided by the resource alone, not by its API group; what is none of these has neither type nor ID.
func impersonatedOf(s spec) (out cedar.Entity) {
	a := s.ResourceAttributes
	name, attributes := cedar.String(a.Name), cedar.RecordMap{}
	switch a.Resource {
	case "serviceaccounts":
		out.UID = cedar.NewEntityUID("k8s::ServiceAccount", cedar.String("system:serviceaccount:"+a.Namespace+":"+a.Name))
		attributes["name"], attributes["namespace"] = name, cedar.String(a.Namespace)
	case "uids":
		out.UID = cedar.NewEntityUID("k8s::PrincipalUID", name)
	case "users":
		out.UID, attributes["name"] = cedar.NewEntityUID("k8s::User", name), name
		if parts := strings.Split(a.Name, ":"); strings.HasPrefix(a.Name, "system:node:") && len(parts) == 3 {
			out.UID.Type, attributes["name"] = "k8s::Node", cedar.String(parts[2])
		}
	case "groups":
		out.UID, attributes["name"] = cedar.NewEntityUID("k8s::Group", name), name
	case "userextras":
		out.UID, attributes["key"] = cedar.NewEntityUID("k8s::Extra", cedar.String(a.Subresource)), cedar.String(a.Subresource)
		if a.Name != "" {
			attributes["value"] = name
		}
	}
	out.Attributes = cedar.NewRecord(attributes)
	return out
}

// TestCedarK8s has the model answer all questions from the exported files. It is wrong only where the model cannot
// say what is granted: left-out.txt lists what it refuses, and only impersonate may be allowed too widely.
func TestCedarK8s(t *testing.T) {
	plan := planOf(t, seed)
	files, err := plan.Policy.Export("cedar-k8s")
	if err != nil {
		t.Fatal(err)
	}
	model, left := cedarK8s{parsed(t, files)}, leftOut(t, files["left-out.txt"])
	var mutex sync.Mutex
	wrong := map[string]int{}
	ask(t, plan, levels(), func(s spec) scenarios.Decision {
		ok, err := model.allowed(s)
		if err != nil {
			t.Errorf("the engine fails: %v", err)
		}
		got, right := scenarios.NoOpinion, plan.Policy.Decide(s)
		if ok {
			got = scenarios.Allow
		}
		mutex.Lock()
		defer mutex.Unlock()
		switch {
		case got == right:
			wrong["right"]++
		case right == scenarios.Allow && left.Decide(s) == scenarios.Allow:
			wrong["left out"]++
		case right == scenarios.Allow && strings.HasPrefix(s.User, "system:"):
			wrong["system: user in a group"]++
		case right == scenarios.NoOpinion && s.ResourceAttributes != nil && s.ResourceAttributes.Verb == "impersonate":
			wrong["impersonate: "+unseen(s)]++
		default:
			raw, _ := json.Marshal(s)
			t.Errorf("got %s, not %s: %s", got, right, raw)
		}
		return got
	})
	t.Log(wrong)
	if n := wrong["impersonate: for no reason that is known"]; n > 0 {
		t.Errorf("%d times somebody may impersonate whom the grant does not cover", n)
	}
	if wrong["right"] < 5000 || wrong["left out"] == 0 {
		t.Errorf("too few were compared: %v", wrong)
	}
}

// unseen is what the model does not look at when somebody is impersonated, or that it takes one entity for another.
func unseen(s spec) string {
	a := s.ResourceAttributes
	group := ""
	if a.Resource == "uids" || a.Resource == "userextras" {
		group = "authentication.k8s.io"
	}
	switch {
	case s.UID != "" && s.UID == a.Name:
		return "the uid is the name of the impersonated user"
	case a.Group != group:
		return "in another API group"
	case a.Subresource != "" && a.Resource != "userextras":
		return "of a subresource"
	case a.Namespace != "" && a.Resource != "serviceaccounts":
		return "in a namespace"
	}
	return "for no reason that is known"
}

// parsed are the policies, each of them ASCII and valid under the schema of the model.
func parsed(t testing.TB, files map[string][]byte) *cedar.PolicySet {
	all := cedar.NewPolicySet()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if bytes.ContainsFunc(files[name], func(r rune) bool { return r > 126 }) {
			t.Errorf("%s is not ASCII", name)
		}
		if path.Ext(name) != ".cedar" {
			continue
		}
		list, err := cedar.NewPolicyListFromBytes(name, files[name])
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range list {
			all.Add(cedar.PolicyID(fmt.Sprintf("%s.%d", name, i)), p)
		}
	}
	validator := validate.New(schemaOf(t, files))
	for id, p := range all.All() {
		if err := validator.Policy(string(id), (*ast.Policy)(p.AST())); err != nil {
			t.Errorf("%s is not valid: %v", id, err)
		}
	}
	return all
}

// leftOut are the grants that are listed.
func leftOut(t testing.TB, raw []byte) *policy.Policy {
	out := &policy.Policy{}
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var g scenarios.Grant
		if err := json.Unmarshal([]byte(line), &g); err != nil {
			t.Fatal(err)
		}
		out.Grants = append(out.Grants, g)
	}
	return out.Index()
}
