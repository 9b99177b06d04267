package engines

import (
	"context"
	"errors"
	"slices"
	"testing"

	openfgav1 "github.com/openfga/api/proto/openfga/v1"
	"github.com/openfga/language/pkg/go/transformer"
	"github.com/openfga/openfga/pkg/server"
	"github.com/openfga/openfga/pkg/storage/memory"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/scenarios"
)

// maxContextual is how many contextual tuples a check may have, and maxWritten how
// many tuples a write.
const maxContextual, maxWritten = 100, 100

// loadOpenFGA writes the tuples into a store in memory. A review is a request
// that asks for every permission which would cover it.
func loadOpenFGA(t testing.TB, rendered []byte) func(spec) (bool, error) {
	var store struct {
		Name   string            `json:"name"`
		Model  string            `json:"model"`
		Tuples []policy.FGATuple `json:"tuples"`
	}
	if err := yaml.UnmarshalStrict(rendered, &store); err != nil {
		t.Fatal(err)
	}
	s := server.MustNewServerWithOpts(server.WithDatastore(memory.New()))
	t.Cleanup(s.Close)
	ctx := t.Context()
	created, err := s.CreateStore(ctx, &openfgav1.CreateStoreRequest{Name: store.Name})
	if err != nil {
		t.Fatal(err)
	}
	model, err := transformer.TransformDSLToProto(store.Model)
	if err != nil {
		t.Fatal(err)
	}
	written, err := s.WriteAuthorizationModel(ctx, &openfgav1.WriteAuthorizationModelRequest{
		StoreId: created.GetId(), SchemaVersion: model.GetSchemaVersion(), TypeDefinitions: model.GetTypeDefinitions(), Conditions: model.GetConditions(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for some := range slices.Chunk(store.Tuples, maxWritten) {
		if _, err := s.Write(ctx, &openfgav1.WriteRequest{
			StoreId: created.GetId(), AuthorizationModelId: written.GetAuthorizationModelId(), Writes: &openfgav1.WriteRequestWrites{TupleKeys: keys(some)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	return func(r spec) (bool, error) {
		user := policy.FGAUser(r.User)
		var groups []policy.FGATuple
		for _, g := range r.Groups {
			groups = append(groups, policy.FGATuple{User: user, Relation: "member", Object: policy.FGAGroup(g)})
		}
		if len(groups) >= maxContextual {
			return false, errors.New("more groups than a check of OpenFGA takes")
		}
		for some := range slices.Chunk(asked(r), maxContextual-len(groups)) {
			tuples := slices.Clone(groups)
			for _, permission := range some {
				tuples = append(tuples, policy.FGATuple{User: permission, Relation: "asks", Object: "request:review"})
			}
			answer, err := s.Check(context.Background(), &openfgav1.CheckRequest{
				StoreId: created.GetId(), AuthorizationModelId: written.GetAuthorizationModelId(),
				TupleKey:         &openfgav1.CheckRequestTupleKey{User: user, Relation: "allowed", Object: "request:review"},
				ContextualTuples: &openfgav1.ContextualTupleKeys{TupleKeys: keys(tuples)},
			})
			if err != nil || answer.GetAllowed() {
				return answer.GetAllowed(), err
			}
		}
		return false, nil
	}
}

// asked are the permissions of which any one covers a review.
func asked(r spec) (ids []string) {
	add := func(part scenarios.Grant) { ids = append(ids, policy.FGAPermission(part)) }
	if a := r.NonResourceAttributes; a != nil {
		for _, verb := range []string{a.Verb, "*"} {
			add(scenarios.Grant{Verbs: []string{verb}, NonResourceURLs: []string{a.Path}})
			for i := range len(a.Path) + 1 {
				add(scenarios.Grant{Verbs: []string{verb}, NonResourceURLs: []string{a.Path[:i] + "*"}})
			}
		}
	}
	if a := r.ResourceAttributes; a != nil {
		resources := []string{"*", a.Resource}
		if a.Subresource != "" {
			resources = []string{"*", "*/" + a.Subresource, a.Resource + "/" + a.Subresource}
		}
		for _, verb := range []string{a.Verb, "*"} {
			for _, group := range []string{a.Group, "*"} {
				for _, resource := range resources {
					for _, namespace := range []string{a.Namespace, ""} {
						for _, names := range [][]string{nil, {a.Name}} {
							add(scenarios.Grant{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, Namespace: namespace, Names: names})
						}
					}
				}
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func keys(tuples []policy.FGATuple) (out []*openfgav1.TupleKey) {
	seen := map[policy.FGATuple]bool{}
	for _, t := range tuples {
		if !seen[t] {
			seen[t] = true
			out = append(out, &openfgav1.TupleKey{User: t.User, Relation: t.Relation, Object: t.Object})
		}
	}
	return out
}
