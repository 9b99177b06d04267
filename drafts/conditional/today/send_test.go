package today

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/authzconf/authzconf/certify"
	webhook "github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/scenarios"
)

// User is the user who sends a request, as an authenticating proxy names users.
type User struct {
	Name   string
	Groups []string
	Extra  map[string][]string
	// Outside says that the user is not in Group.
	Outside bool
}

// Response is the answer to a request.
type Response struct {
	Code     int
	Body     []byte
	Warnings []string
}

// Status is the message of a Status, if it is one.
func (r Response) Status() string {
	var s struct{ Kind, Message string }
	if json.Unmarshal(r.Body, &s) != nil || s.Kind != "Status" {
		return ""
	}
	return s.Message
}

// expect is an error unless the response has a code.
func (r Response) expect(code int) error {
	if r.Code != code {
		return fmt.Errorf("%d: %s", r.Code, r.Status())
	}
	return nil
}

// client sends requests of a user, nil for the admin, over the connections that client-go shares.
func (c *Cluster) client(u *User) (*http.Client, error) {
	if u == nil {
		return c.admin, nil
	}
	groups := u.Groups
	if !u.Outside {
		groups = append([]string{Group}, groups...)
	}
	return c.UserClient(scenarios.Requestor{User: u.Name, Groups: groups, Extra: u.Extra}, nil, func(*http.Request) {})
}

// Send sends a request of a user, nil for the admin, with a JSON body.
func (c *Cluster) Send(ctx context.Context, u *User, method, path, contentType string, body any) (out Response, err error) {
	var raw []byte
	if body != nil {
		if raw, err = json.Marshal(body); err != nil {
			return out, err
		}
	}
	return c.sendRaw(ctx, u, method, path, contentType, bytes.NewReader(raw))
}

// sendRaw sends a request of a user, nil for the admin, with an unchanged body.
func (c *Cluster) sendRaw(ctx context.Context, u *User, method, path, contentType string, body io.Reader) (out Response, err error) {
	client, err := c.client(u)
	if err != nil {
		return out, err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Host()+path, body)
	if err != nil {
		return out, err
	}
	req.Header.Set("Content-Type", cmp.Or(contentType, "application/json"))
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return out, err
	}
	defer func() { _ = resp.Body.Close() }()
	out = Response{Code: resp.StatusCode, Warnings: resp.Header.Values("Warning")}
	out.Body, err = io.ReadAll(resp.Body)
	return out, err
}

// Made is an object and where it is posted.
type Made struct {
	Path   string         `yaml:"path"`
	Object map[string]any `yaml:"object"`
}

// Make creates an object as the admin.
func (c *Cluster) Make(ctx context.Context, m Made) error {
	r, err := c.Send(ctx, nil, http.MethodPost, m.Path, "", m.Object)
	if err == nil {
		err = r.expect(http.StatusCreated)
	}
	if err != nil {
		return fmt.Errorf("making an object at %s: %w", m.Path, err)
	}
	return nil
}

// admissionKubeconfig returns a kubeconfig that gives the API server a client certificate, taken from another
// kubeconfig, for a webhook. The API server looks up the certificate by host and port.
func admissionKubeconfig(raw []byte, host string) ([]byte, error) {
	from, err := clientcmd.Load(raw)
	if err != nil {
		return nil, fmt.Errorf("conditional: %w", err)
	}
	to := clientcmdapi.NewConfig()
	to.AuthInfos[host] = from.AuthInfos[from.Contexts[from.CurrentContext].AuthInfo]
	return clientcmd.Write(*to)
}

// evaluator has the reference authorizer evaluate conditions, by TLS, as an API server would that knows the KEP.
type evaluator struct{ poster *certify.Poster }

// serveEvaluator starts an evaluator, which stops when the test ends.
func serveEvaluator(t testing.TB, a *reference.Authorizer) evaluator {
	server, err := webhook.Start(reference.Handler(wire.Seed, a), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	raw, err := reference.Kubeconfig(server)
	if err != nil {
		t.Fatal(err)
	}
	w, err := certify.ParseWebhook(raw, reference.ConditionsContext)
	if err != nil {
		t.Fatal(err)
	}
	poster, err := w.NewPoster()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(poster.Close)
	return evaluator{poster}
}

// allows reports whether a condition lets a request through.
func (e evaluator) allows(ctx context.Context, name, text string, data vectors.ConditionData) (bool, error) {
	body, err := wire.Seed.AskConditions(vectors.AuthorizationConditionsRequest{
		ConditionSets: []vectors.ConditionSet{
			{AuthorizerName: reference.DefaultName, FailureMode: vectors.FailDeny, Conditions: []vectors.Condition{
				{ID: name, Effect: vectors.Allow, Type: reference.TypeCEL, Condition: text},
			}},
		},
		ConditionData: data,
	})
	if err != nil {
		return false, err
	}
	code, answer, fault := e.poster.Post(ctx, body)
	if fault != "" || code != http.StatusOK {
		return false, fmt.Errorf("the webhook does not answer: %d %s", code, fault)
	}
	response, err := wire.Seed.ReadConditions(answer)
	if err != nil {
		return false, err
	}
	if response == nil ||
		response.Allowed && response.Denied {
		return false, errors.New("the response is not valid")
	}
	return response.Allowed, nil
}
