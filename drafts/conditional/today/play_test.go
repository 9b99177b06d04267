package today

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

const mutatePath = "/mutate"

// player runs cases on a cluster, with a mutating webhook in addition to the validating one.
type player struct {
	*Cluster
	mutated atomic.Int64
	// mutate is the answer of the mutating webhook: a JSON patch, or nil.
	mutate atomic.Pointer[[]byte]
	// during are policies that the mutating webhook puts into force when it is called.
	during atomic.Pointer[reference.Snapshot]
}

func newPlayer(c *Cluster) *player {
	p := &player{Cluster: c}
	c.handle(mutatePath, &p.mutated, http.HandlerFunc(p.mutation))
	return p
}

// mutation answers an admission review with the current patch.
func (c *player) mutation(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(io.LimitReader(req.Body, 4<<20))
	var in admissionv1.AdmissionReview
	if err != nil || json.Unmarshal(body, &in) != nil || in.Request == nil {
		http.Error(w, "the body is not an AdmissionReview with a request", http.StatusBadRequest)
		return
	}
	out := &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: true}
	if s := c.during.Swap(nil); s != nil {
		c.Authorizer.Use(s)
	}
	if p := c.mutate.Load(); p != nil {
		kind := admissionv1.PatchTypeJSONPatch
		out.Patch, out.PatchType = *p, &kind
	}
	raw, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: out})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(raw)
}

// Register has the API server call both admission webhooks, and waits until it
// does.
func (c *player) Register(ctx context.Context) error {
	for kind, path := range map[string]string{"ValidatingWebhookConfiguration": admitPath, "MutatingWebhookConfiguration": mutatePath} {
		if err := c.register(ctx, kind, path, "CREATE", "UPDATE", "DELETE", "CONNECT"); err != nil {
			return err
		}
	}
	return c.waitForWebhooks(ctx, true)
}

// Unregister deletes both registrations.
func (c *player) Unregister(ctx context.Context) error {
	for _, resource := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
		r, err := c.Send(ctx, nil, http.MethodDelete, webhooksPath+resource+"/"+webhooksName, "", nil)
		if err == nil && r.Code != http.StatusOK {
			err = errors.New(r.Status())
		}
		if err != nil {
			return err
		}
	}
	return c.waitForWebhooks(ctx, false)
}

// waitForWebhooks sends requests that change nothing until both are called, or
// neither is.
func (c *player) waitForWebhooks(ctx context.Context, called bool) error {
	probe := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"generateName": "probe-"}}
	by := &User{Name: "probe", Groups: []string{"system:masters"}} // whom no authorizer sees
	what := fmt.Sprintf("admission webhooks are called: %t", called)
	return until(ctx, what, func(ctx context.Context) (bool, error) {
		judged, mutated := c.Judged.Load(), c.mutated.Load()
		_, err := c.Send(ctx, by, http.MethodPost, "/api/v1/namespaces/default/configmaps?dryRun=All", "", probe)
		return (c.Judged.Load() > judged) == called && (c.mutated.Load() > mutated) == called, err
	})
}

const selfReviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

// Play runs a case and returns what differed from the expectations. Its error is about the environment.
func (c *player) Play(ctx context.Context, cs Case) (wrong []string, err error) {
	if err := c.use(cs.Policies); err != nil {
		return nil, err
	}
	c.answer(reference.Handler(wire.Seed, Today{Authorizer: c.Authorizer, Careless: cs.Careless}))
	c.mutate.Store(nil)
	for _, m := range append(append([]Made{}, cs.Behind...), cs.Objects...) {
		if err := c.Make(ctx, m); err != nil {
			return nil, err
		}
	}
	if cs.Mutate != nil {
		raw, err := json.Marshal(cs.Mutate)
		if err != nil {
			return nil, err
		}
		c.mutate.Store(&raw)
		defer c.mutate.Store(nil)
	}
	for i, r := range cs.Requests {
		differences, err := c.prepared(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
		for _, d := range differences {
			wrong = append(wrong, fmt.Sprintf("request %d (%s %s by %s): %s", i, r.Method, r.Path, r.By, d))
		}
	}
	return wrong, nil
}

// prepared makes the changes that a request wants before it is sent, and then sends the request.
func (c *player) prepared(ctx context.Context, r Request) (wrong []string, err error) {
	if r.Policies != nil {
		if err := c.use(r.Policies); err != nil {
			return nil, err
		}
	}
	if r.During != nil {
		s, err := reference.NewSnapshot(r.During)
		if err != nil {
			return nil, err
		}
		c.during.Store(s)
		defer c.during.Store(nil)
	}
	if r.Unregistered {
		if err := c.Unregister(ctx); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, c.Register(ctx)) }()
	}
	return c.sendRequest(ctx, r)
}

func (c *player) use(policies []vectors.Policy) error {
	s, err := reference.NewSnapshot(policies)
	if err != nil {
		return err
	}
	c.Authorizer.Use(s)
	return nil
}

// patchTypes are the content types of Request.Patch.
var patchTypes = map[string]string{"merge": "application/merge-patch+json", "apply": "application/apply-patch+yaml"}

// sendRequest sends a request and compares.
func (c *player) sendRequest(ctx context.Context, r Request) (wrong []string, err error) {
	u := &User{Name: r.By, Groups: r.Groups, Extra: r.Extra}
	if r.Expect.Review != nil {
		allowed, err := c.canI(ctx, u, r.Expect.Review)
		if err != nil {
			return nil, err
		}
		if allowed != *r.Expect.Allowed {
			wrong = append(wrong, fmt.Sprintf("SelfSubjectAccessReview: allowed is %t, want %t", allowed, *r.Expect.Allowed))
		}
	}
	judged, mutated := c.Judged.Load(), c.mutated.Load()
	var body any
	if r.Body != nil {
		body = r.Body
	}
	resp, err := c.Send(ctx, u, r.Method, r.Path, patchTypes[r.Patch], body)
	if err != nil {
		return nil, err
	}
	if resp.Code != r.Expect.Code {
		wrong = append(wrong, fmt.Sprintf("code is %d, want %d (%s)", resp.Code, r.Expect.Code, resp.Status()))
	}
	if !strings.Contains(resp.Status(), r.Expect.Message) {
		wrong = append(wrong, fmt.Sprintf("message is %q, want %q in it", resp.Status(), r.Expect.Message))
	}
	if n := c.Judged.Load() - judged; r.Expect.Judged != nil && n != int64(*r.Expect.Judged) {
		wrong = append(wrong, fmt.Sprintf("judged %d times, want %d", n, *r.Expect.Judged))
	}
	if n := c.mutated.Load() - mutated; r.Expect.Mutated != nil && n != int64(*r.Expect.Mutated) {
		wrong = append(wrong, fmt.Sprintf("mutated %d times, want %d", n, *r.Expect.Mutated))
	}
	return wrong, nil
}

// canI asks the API server whether a user may do something.
func (c *player) canI(ctx context.Context, u *User, attributes any) (bool, error) {
	body := map[string]any{
		"apiVersion": "authorization.k8s.io/v1",
		"kind":       "SelfSubjectAccessReview",
		"spec":       map[string]any{"resourceAttributes": attributes},
	}
	r, err := c.Send(ctx, u, http.MethodPost, selfReviews, "", body)
	if err != nil {
		return false, err
	}
	var answer struct {
		Status struct{ Allowed *bool }
	}
	if err := json.Unmarshal(r.Body, &answer); err != nil || r.Code != http.StatusCreated || answer.Status.Allowed == nil {
		return false, errors.New("a SelfSubjectAccessReview is not answered: " + r.Status())
	}
	return *answer.Status.Allowed, nil
}
