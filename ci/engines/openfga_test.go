package engines

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"

	openfgav1 "github.com/openfga/api/proto/openfga/v1"
	"github.com/openfga/language/pkg/go/transformer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

// maxContextual is how many contextual tuples a check may have, and maxWritten how many tuples a write.
const maxContextual, maxWritten = 100, 100

// fgaWebhook is the program fga-webhook, a webhook authorizer in front of a running OpenFGA server: it loads the policy
// as authzconf certify policy -o openfga writes it, and asks for every permission that would cover a review. It serves
// until it is interrupted.
func fgaWebhook() int {
	address := flag.String("openfga", "127.0.0.1:8081", "gRPC address of OpenFGA")
	store := flag.String("store", "", "file with the policy, of authzconf certify policy -o openfga")
	kubeconfig := flag.String("kubeconfig", "", "file to write: the kubeconfig for the API server, or for authzconf certify")
	flag.Parse()
	if err := serveFGA(*address, *store, *kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

func serveFGA(address, file, kubeconfig string) error {
	if file == "" || kubeconfig == "" {
		return errors.New("--store and --kubeconfig are needed")
	}
	rendered, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	w, closeConnection, err := connectFGA(ctx, address, rendered)
	if err != nil {
		return fmt.Errorf("%s, to OpenFGA at %s: %w", file, address, err)
	}
	defer func() { _ = closeConnection() }()
	closeServer, err := reference.ServeFor(w, kubeconfig, (*reference.Server).Kubeconfig)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return closeServer()
}

// connectFGA connects to OpenFGA and loads a policy. The caller has to close the connection.
func connectFGA(ctx context.Context, address string, rendered []byte) (_ *webhook, closeConnection func() error, err error) {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	w := &webhook{server: openfgav1.NewOpenFGAServiceClient(connection)}
	if err := w.load(ctx, rendered); err != nil {
		return nil, nil, errors.Join(err, connection.Close())
	}
	return w, connection.Close, nil
}

// webhook answers reviews from one store.
type webhook struct {
	server       openfgav1.OpenFGAServiceClient
	store, model string
}

// load writes model and tuples into a new store.
func (w *webhook) load(ctx context.Context, rendered []byte) error {
	var store struct {
		Name   string            `json:"name"`
		Model  string            `json:"model"`
		Tuples []policy.FGATuple `json:"tuples"`
	}
	if err := yaml.UnmarshalStrict(rendered, &store); err != nil {
		return err
	}
	created, err := w.server.CreateStore(ctx, &openfgav1.CreateStoreRequest{Name: store.Name}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	model, err := transformer.TransformDSLToProto(store.Model)
	if err != nil {
		return err
	}
	written, err := w.server.WriteAuthorizationModel(ctx, &openfgav1.WriteAuthorizationModelRequest{
		StoreId:         created.GetId(),
		SchemaVersion:   model.GetSchemaVersion(),
		TypeDefinitions: model.GetTypeDefinitions(),
		Conditions:      model.GetConditions(),
	})
	if err != nil {
		return err
	}
	w.store, w.model = created.GetId(), written.GetAuthorizationModelId()
	for some := range slices.Chunk(store.Tuples, maxWritten) {
		_, err := w.server.Write(ctx, &openfgav1.WriteRequest{
			StoreId: w.store, AuthorizationModelId: w.model, Writes: &openfgav1.WriteRequestWrites{TupleKeys: keys(some)},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ServeHTTP answers a review. Where OpenFGA cannot be asked the answer is 503, and the API server's failurePolicy decides.
func (w *webhook) ServeHTTP(out http.ResponseWriter, req *http.Request) {
	reference.Posted(func(body []byte) ([]byte, error) {
		version, spec, err := reference.Decode(body)
		if err != nil {
			return nil, err
		}
		allowed, err := w.allowed(req.Context(), spec)
		switch {
		case err != nil:
			out.WriteHeader(http.StatusServiceUnavailable) // the first status is the one that counts
			return nil, err
		case allowed:
			return reference.Answer(version, scenarios.Allow), nil
		}
		return reference.Answer(version, scenarios.NoOpinion), nil
	}).ServeHTTP(out, req)
}

// allowed asks OpenFGA. The groups of the user and the permissions that would do are contextual tuples of a check; of
// more permissions than fit into one there are several, and of more groups too.
func (w *webhook) allowed(ctx context.Context, r authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	user := policy.FGAUser(r.User)
	groups := [][]policy.FGATuple{nil}
	if len(r.Groups) > 0 {
		groups = nil
		for some := range slices.Chunk(r.Groups, maxContextual/2) {
			var members []policy.FGATuple
			for _, g := range some {
				members = append(members, policy.FGATuple{User: user, Relation: "member", Object: policy.FGAGroup(g)})
			}
			groups = append(groups, members)
		}
	}
	for _, members := range groups {
		for some := range slices.Chunk(listPermissions(r), maxContextual-len(members)) {
			tuples := slices.Clone(members)
			for _, permission := range some {
				tuples = append(tuples, policy.FGATuple{User: permission, Relation: "asks", Object: "request:review"})
			}
			answer, err := w.server.Check(ctx, &openfgav1.CheckRequest{
				StoreId: w.store, AuthorizationModelId: w.model,
				TupleKey:         &openfgav1.CheckRequestTupleKey{User: user, Relation: "allowed", Object: "request:review"},
				ContextualTuples: &openfgav1.ContextualTupleKeys{TupleKeys: keys(tuples)},
			})
			if err != nil || answer.GetAllowed() {
				return answer.GetAllowed(), err
			}
		}
	}
	return false, nil
}

// listPermissions returns the permissions any one of which covers a review.
func listPermissions(r authorizationv1.SubjectAccessReviewSpec) (ids []string) {
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
		resources, named := []string{"*", a.Resource}, [][]string{nil}
		if a.Name != "" {
			named = append(named, []string{a.Name})
		}
		if a.Subresource != "" {
			resources = []string{"*", "*/" + a.Subresource, a.Resource + "/" + a.Subresource}
		}
		for _, verb := range []string{a.Verb, "*"} {
			for _, group := range []string{a.Group, "*"} {
				for _, resource := range resources {
					for _, namespace := range []string{a.Namespace, ""} {
						for _, names := range named {
							add(
								scenarios.Grant{
									Verbs:     []string{verb},
									APIGroups: []string{group},
									Resources: []string{resource},
									Namespace: namespace,
									Names:     names,
								},
							)
						}
					}
				}
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// keys are the tuples in the words of the API, none of them twice.
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
