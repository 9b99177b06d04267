package enforcer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/granular/permissions"
)

// maxAttempts is how often a request is judged anew because somebody else has changed the object meanwhile: as often as
// kube-apiserver retries a patch (k8s.io/apiserver/pkg/endpoints/handlers/patch.go, maxRetryWhenPatchConflicts).
const maxAttempts = 5

// judge does the steps of KEP-3617, "API Server Additional Plumbing and Checks".
func (e *Enforcer) judge(ctx context.Context, r *Request, d *Decision) (*outcome, error) {
	ask := e.asker(ctx, r, d)
	var ordinary bool
	var err error
	if e.o.Steps.Ordinary {
		if ordinary, err = ask(r.Info.Verb); err != nil {
			return nil, err
		}
	}
	root := e.o.Descriptions.Tree(r.Info.APIGroup, r.Info.APIVersion, r.Info.Resource)
	if ordinary && !root.Excluded() {
		return &outcome{as: r.User}, nil // nothing that the permission does not contain
	}
	as := r.User
	if !ordinary {
		d.Granular, err = ask(permissions.GeneralVerb)
		switch {
		case err != nil:
			return nil, err
		case !d.Granular:
			return nil, forbidden(r, r.Info.Verb, "")
		case secondary.Has(r.Info.APIGroup):
			return nil, forbidden(r, r.Info.Verb, "granular permissions are of no use in this API group")
		}
		as = e.executor(r.User)
	}
	if !e.o.Steps.Checked(r) {
		return &outcome{as: as}, nil
	}
	for d.Attempts = 1; ; d.Attempts++ {
		out, err := e.check(ctx, r, root, as, ordinary, ask, d)
		switch {
		case !errors.Is(err, errConflict):
			return out, err
		case d.Attempts == maxAttempts:
			return nil, apierrors.NewConflict(schema.GroupResource{Group: r.Info.APIGroup, Resource: r.Info.Resource}, r.Info.Name, err)
		}
	}
}

var errConflict = errors.New("the object was changed meanwhile")

// executor is the actor with every right, for what granular permissions allow.
func (e *Enforcer) executor(u user.Info) user.Info {
	return &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Extra: u.GetExtra(), Groups: append(slices.Clone(u.GetGroups()), e.o.Group)}
}

// check computes the change of a request, and asks for the permissions of its fields.
func (e *Enforcer) check(ctx context.Context, r *Request, root *permissions.Node, as user.Info, ordinary bool, ask Ask, d *Decision) (*outcome, error) {
	old, err := e.stored(ctx, r)
	if err != nil {
		return nil, err
	}
	body, err := r.pinned(versionOf(old))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	change, out, err := e.dryRun(ctx, r, as, old, body)
	if out != nil || err != nil {
		return out, err
	}
	fields, err := e.changed(root, change)
	if err != nil {
		return nil, err
	}
	d.Fields = len(fields)
	if ordinary {
		fields = e.o.Steps.Excluded(fields)
	}
	if e.o.Steps.Early {
		if _, err := e.send(ctx, r.http.Method, r.http.URL.Path, r.http.URL.RawQuery, headers(r), body, as); err != nil {
			return nil, err
		}
	}
	if d.Missing, err = e.o.Steps.Decide(fields, ask); err != nil {
		return nil, err
	}
	if d.Missing != nil {
		denied := forbidden(r, r.Info.Verb, "")
		denied.ErrStatus.Message = e.o.Steps.Message(r, d.Missing)
		return nil, denied
	}
	return &outcome{as: as, body: body}, nil
}

// changed computes the fields; a schema that is out of date is asked for again.
func (e *Enforcer) changed(root *permissions.Node, c Change) ([]Changed, error) {
	kind := (&unstructured.Unstructured{Object: c.New}).GroupVersionKind()
	var failure error
	for _, fresh := range []bool{false, true} {
		t, err := e.schemas.of(kind, fresh)
		if err != nil {
			return nil, err
		}
		c.Type = t
		fields, err := e.o.Steps.Changed(root, c)
		if err == nil {
			return fields, nil
		}
		failure = err
	}
	return nil, fmt.Errorf("comparing the object with its schema: %w", failure)
}

// stored is the object that a request is about, nil if there is none.
func (e *Enforcer) stored(ctx context.Context, r *Request) (map[string]any, error) {
	if r.Info.Verb == "create" {
		return nil, nil
	}
	path := strings.TrimSuffix(r.http.URL.Path, "/")
	if r.Info.Subresource != "" {
		path = strings.TrimSuffix(path, "/"+r.Info.Subresource)
	}
	a, err := e.send(ctx, http.MethodGet, path, "", nil, nil, nil)
	switch {
	case err != nil:
		return nil, err
	case a.code == http.StatusNotFound && r.Apply() && r.Info.Subresource == "":
		return nil, nil
	case a.code != http.StatusOK:
		return nil, apierrors.NewGenericServerResponse(a.code, r.Info.Verb, schema.GroupResource{Group: r.Info.APIGroup, Resource: r.Info.Resource}, r.Info.Name, "", 0, false)
	}
	var out map[string]any
	return out, utiljson.Unmarshal(a.body, &out)
}

// dryRun lets the API server compute what a request makes of the object. If it refuses, its answer is the outcome.
func (e *Enforcer) dryRun(ctx context.Context, r *Request, as user.Info, old map[string]any, body []byte) (Change, *outcome, error) {
	c := Change{Old: old}
	var err error
	if c.Sent, err = r.object(); err != nil {
		return c, nil, apierrors.NewBadRequest(err.Error())
	}
	query, err := url.ParseQuery(r.http.URL.RawQuery)
	if err != nil {
		return c, nil, apierrors.NewBadRequest(err.Error())
	}
	query.Set("dryRun", "All")
	a, err := e.send(ctx, r.http.Method, r.http.URL.Path, query.Encode(), headers(r), body, as)
	switch {
	case err != nil:
		return c, nil, err
	case a.code == http.StatusConflict && old != nil && e.moved(ctx, r, old):
		return c, nil, errConflict
	case a.code >= http.StatusMultipleChoices:
		return c, &outcome{refusal: a}, nil
	}
	return c, nil, utiljson.Unmarshal(a.body, &c.New)
}

// moved says whether the stored object is not what it was.
func (e *Enforcer) moved(ctx context.Context, r *Request, old map[string]any) bool {
	now, err := e.stored(ctx, r)
	return err == nil && versionOf(now) != versionOf(old)
}

func versionOf(object map[string]any) string {
	return (&unstructured.Unstructured{Object: object}).GetResourceVersion()
}

// headers are those of a client's request that say how its body is to be read.
func headers(r *Request) http.Header {
	out := http.Header{}
	for _, name := range []string{"Content-Type", "User-Agent"} {
		if v := r.http.Header.Values(name); len(v) > 0 {
			out[name] = v
		}
	}
	return out
}
