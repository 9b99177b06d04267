package enforcer

import (
	"context"
	"fmt"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// secondary are the API groups for whose resources the API server makes additional checks of the actor's own
// permissions: escalation and binding of roles (pkg/registry/rbac/escalation_check.go), approval and signing of
// certificates (plugin/pkg/admission/certificates), and what admission policies may read
// (pkg/registry/admissionregistration). A request that is carried out with more rights than the actor's would pass
// these checks, so granular permissions allow nothing in these groups.
var secondary = sets.New("rbac.authorization.k8s.io", "certificates.k8s.io", "admissionregistration.k8s.io",
	"authentication.k8s.io", "authorization.k8s.io", "resource.k8s.io")

// judge follows the steps of KEP-3617, "API Server Additional Plumbing and Checks".
func (e *Enforcer) judge(ctx context.Context, r *Request, d *Decision) (_ *outcome, err error) {
	ask := e.asker(ctx, r, d)
	var ordinary bool
	if e.o.Steps.Ordinary {
		if ordinary, err = ask(r.Info.Verb); err != nil {
			return nil, err
		}
	}
	root := e.o.Descriptions.Tree(r.Info.APIGroup, r.Info.APIVersion, r.Info.Resource)
	if ordinary && !root.Excluded() {
		return &outcome{as: r.User}, nil // the permission contains every field
	}
	userInfo := r.User
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
		// Requests that granular permissions allow are carried out with every right.
		userInfo = &user.DefaultInfo{
			Name:   r.User.GetName(),
			UID:    r.User.GetUID(),
			Extra:  r.User.GetExtra(),
			Groups: append(slices.Clone(r.User.GetGroups()), e.o.Group),
		}
	}
	if !e.o.Steps.Checked(r) {
		return &outcome{as: userInfo}, nil
	}
	return e.check(ctx, r, root, userInfo, ordinary, ask, d)
}

// check computes the change that a request makes, and asks for the permissions of the changed fields.
func (e *Enforcer) check(
	ctx context.Context,
	r *Request,
	root *permissions.Node,
	userInfo user.Info,
	ordinary bool,
	ask Ask,
	d *Decision,
) (*outcome, error) {
	old, err := e.fetchStored(ctx, r)
	if err != nil {
		return nil, err
	}
	body, err := r.pinVersion((&unstructured.Unstructured{Object: old}).GetResourceVersion())
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	change, err := e.dryRun(ctx, r, userInfo, old, body)
	if err != nil {
		return nil, err
	}
	var fields []ChangedField
	if change.Type, err = e.schemas.typeOf((&unstructured.Unstructured{Object: change.New}).GroupVersionKind()); err == nil {
		fields, err = e.o.Steps.Changed(root, change)
	}
	if err != nil {
		return nil, fmt.Errorf("comparing the object with its schema: %w", err)
	}
	d.Fields = len(fields)
	if ordinary {
		fields = e.o.Steps.Excluded(fields)
	}
	if e.o.Steps.Early {
		if _, err := e.send(ctx, r, r.http.URL.RawQuery, body, userInfo); err != nil {
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
	return &outcome{as: userInfo, body: body}, nil
}

// fetchStored returns the stored object that a request changes. It is nil if the request creates the object.
func (e *Enforcer) fetchStored(ctx context.Context, r *Request) (map[string]any, error) {
	if r.Info.Verb == "create" {
		return nil, nil
	}
	resource := schema.GroupVersionResource{Group: r.Info.APIGroup, Version: r.Info.APIVersion, Resource: r.Info.Resource}
	namespace := r.Info.Namespace
	if r.Info.APIGroup == "" && r.Info.Resource == "namespaces" { // to authorizers, a namespace is inside itself
		namespace = ""
	}
	old, err := e.objects.Resource(resource).Namespace(namespace).Get(ctx, r.Info.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && r.Apply() && r.Info.Subresource == "":
		return nil, nil
	case err != nil:
		return nil, err
	}
	return old.Object, nil
}

func (e *Enforcer) dryRun(ctx context.Context, r *Request, userInfo user.Info, old map[string]any, body []byte) (Change, error) {
	c := Change{Old: old}
	query, err := url.ParseQuery(r.http.URL.RawQuery)
	if err == nil {
		c.Sent, err = r.object()
	}
	if err != nil {
		return c, apierrors.NewBadRequest(err.Error())
	}
	query.Set("dryRun", "All")
	updated, err := e.send(ctx, r, query.Encode(), body, userInfo)
	if err != nil {
		return c, err
	}
	return c, utiljson.Unmarshal(updated, &c.New)
}
