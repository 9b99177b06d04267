// Package enforcer is a reference for the checks of KEP-3617 (Fine-Grained Authorization): an authenticating proxy
// before a real API server, which asks for the permissions of the fields that a request changes. It is no API
// server: where the KEP has a step inside the server, this has the nearest thing that can be done from outside,
// and docs/granular.md says where the two must differ.
package enforcer

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Options say what an enforcer stands before.
type Options struct {
	// Backend is the API server, with the enforcer's rights: to review tokens and access, read objects, and impersonate.
	Backend *rest.Config
	// Group is a group with every right, which is added to those of an actor whose request is carried out because
	// of granular permissions. Who is in it otherwise has every right, too.
	Group        string
	Descriptions *permissions.Set // the permissions of fields
	Steps        Steps            // those of the reference unless some of them are replaced
	// Record, if set, is given every decision. It may be called at any time from several goroutines.
	Record func(Decision)
}

// Steps are the parts of the enforcer that a faulty enforcer has wrong.
type Steps struct {
	// Checked says whether the fields of a request are checked.
	Checked func(*Request) bool
	// Ordinary says whether the ordinary permission is asked for.
	Ordinary bool
	Changed  func(root *permissions.Node, c Change) ([]Changed, error) // the fields that a request changes
	// Excluded keeps those that the ordinary permission does not contain.
	Excluded func([]Changed) []Changed
	// Decide asks for their permissions.
	Decide     func([]Changed, Ask) (*Missing, error)
	Attributes func(r *Request, verb string) authorizer.AttributesRecord // what is asked about
	Message    func(r *Request, m *Missing) string                       // what a client is told
	// Early carries requests out before their fields are checked.
	Early bool
}

// Reference is the steps as KEP-3617 has them.
func Reference() Steps {
	return Steps{
		Checked:  func(*Request) bool { return true },
		Ordinary: true,
		Changed:  ChangedFields,
		Excluded: func(fields []Changed) []Changed {
			return slices.DeleteFunc(slices.Clone(fields), func(f Changed) bool { return !f.Chain.Excluded() })
		},
		Decide:     Decide,
		Attributes: (*Request).Attributes, Message: message,
	}
}

// ChangedFields are the fields that a request changes, with their permissions.
func ChangedFields(root *permissions.Node, c Change) ([]Changed, error) {
	paths, err := c.Paths()
	return seq.Map(paths, func(p fieldpath.Path) Changed {
		return Changed{Path: strings.TrimPrefix(p.String(), "."), Chain: ChainOf(root, p)}
	}), err
}

// Enforcer is the proxy, as an HTTP handler.
type Enforcer struct {
	o       Options
	client  kubernetes.Interface
	objects dynamic.Interface
	url     *url.URL
	forward http.RoundTripper
	schemas schemas
}

// New makes an enforcer.
func New(o Options) (*Enforcer, error) {
	client, err := kubernetes.NewForConfig(o.Backend)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(o.Backend)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(o.Backend)
	if err != nil {
		return nil, err
	}
	u, _, err := rest.DefaultServerUrlFor(o.Backend)
	if err != nil {
		return nil, err
	}
	return &Enforcer{o: o, client: client, objects: objects, url: u, forward: transport, schemas: schemas{Client: client.Discovery().OpenAPIV3(), kept: map[schema.GroupVersion]published{}}}, nil
}

func (e *Enforcer) authenticate(ctx context.Context, r *http.Request) (user.Info, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, apierrors.NewUnauthorized("Unauthorized")
	}
	review, err := e.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: strings.TrimSpace(token)}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if !review.Status.Authenticated {
		return nil, apierrors.NewUnauthorized("Unauthorized")
	}
	u := review.Status.User
	return &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: scenarios.UserOf("", "", nil, u.Extra).Extra}, nil
}

func (e *Enforcer) asker(ctx context.Context, r *Request, d *Decision) Ask {
	return func(verb string) (bool, error) {
		a := e.o.Steps.Attributes(r, verb)
		check := Check{ResourceAttributes: authorizationv1.ResourceAttributes{
			Verb: verb, Group: a.APIGroup, Version: a.APIVersion, Resource: a.Resource, Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name,
		}}
		extra := map[string]authorizationv1.ExtraValue{}
		for key, values := range a.User.GetExtra() {
			extra[key] = values
		}
		review, err := e.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: a.User.GetName(), UID: a.User.GetUID(), Groups: a.User.GetGroups(), Extra: extra, ResourceAttributes: &check.ResourceAttributes,
		}}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("asking for %s: %w", verb, err)
		}
		check.Allowed = review.Status.Allowed
		d.Checks = append(d.Checks, check)
		return check.Allowed, nil
	}
}

// Ask asks the authorizer for one verb.
type Ask func(verb string) (allowed bool, err error)

// Missing is why a request is denied: a field that no permission covers.
type Missing struct {
	Field string `json:"field"` // its path
	// Verb is the last permission that was asked for it; empty if there is none to ask for.
	Verb string `json:"verb,omitempty"`
}

// Changed is a field that a request changes.
type Changed struct {
	Path  string
	Chain permissions.Chain
}

type question struct {
	verb   string
	depth  int
	fields []int
}

// Decide asks for permissions from the most general to the most specific, each once, and only while a field needs
// it, until every field is covered, or one of them cannot be any more (KEP-3617, steps 5 and 8).
func Decide(fields []Changed, ask Ask) (*Missing, error) {
	questions, open := plan(fields)
	for i, f := range fields {
		if open[i] == 0 {
			return &Missing{Field: f.Path}, nil
		}
	}
	covered := make([]bool, len(fields))
	for _, q := range questions {
		if !slices.ContainsFunc(q.fields, func(i int) bool { return !covered[i] }) {
			continue
		}
		allowed, err := ask(q.verb)
		if err != nil {
			return nil, err
		}
		for _, i := range q.fields {
			open[i]--
			covered[i] = covered[i] || allowed
			if !covered[i] && open[i] == 0 {
				return &Missing{Field: fields[i].Path, Verb: q.verb}, nil
			}
		}
	}
	return nil, nil
}

// plan orders the questions, and counts them by field.
func plan(fields []Changed) (questions []*question, open []int) {
	byVerb := map[string]*question{}
	open = make([]int, len(fields))
	for i, f := range fields {
		for _, p := range f.Chain {
			q := byVerb[p.Verb]
			if q == nil {
				q = &question{verb: p.Verb, depth: p.Depth}
				byVerb[p.Verb] = q
				questions = append(questions, q)
			}
			q.depth = min(q.depth, p.Depth)
			if n := len(q.fields); n == 0 || q.fields[n-1] != i {
				q.fields = append(q.fields, i)
				open[i]++
			}
		}
	}
	slices.SortFunc(questions, func(a, b *question) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), cmp.Compare(a.verb, b.verb))
	})
	return questions, open
}

// Check is one question to the authorizer, and its answer.
type Check struct {
	authorizationv1.ResourceAttributes `json:",inline"`
	Allowed                            bool `json:"allowed"`
}

// Decision is what became of a request whose fields are checked.
type Decision struct {
	User string `json:"user"`
	Verb string `json:"verb"`
	// Checks are in the order in which they were asked, the ordinary permission first.
	Checks []Check `json:"checks"`
	// Granular says that the ordinary permission was not held, and GeneralVerb was.
	Granular bool     `json:"granular,omitempty"`
	Fields   int      `json:"fields"`            // how many fields change; -1 if that was not computed
	Missing  *Missing `json:"missing,omitempty"` // why the request was denied for its fields
}

// message is what a client is told who lacks a permission of a field: one, for finding
// all would be as many checks as somebody likes to cause (KEP-3617, step 8).
func message(r *Request, m *Missing) string {
	verb, reason := m.Verb, ""
	if verb == "" {
		verb, reason = r.Info.Verb, fmt.Sprintf("no granular permission covers %s", m.Field)
	}
	return responsewriters.ForbiddenStatusError(r.Attributes(verb), reason).ErrStatus.Message
}

// judge does the steps of KEP-3617, "API Server Additional Plumbing and Checks".
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
		// With every right, for what granular permissions allow.
		as = &user.DefaultInfo{Name: r.User.GetName(), UID: r.User.GetUID(), Extra: r.User.GetExtra(), Groups: append(slices.Clone(r.User.GetGroups()), e.o.Group)}
	}
	if !e.o.Steps.Checked(r) {
		return &outcome{as: as}, nil
	}
	return e.check(ctx, r, root, as, ordinary, ask, d)
}

// check computes the change of a request, and asks for the permissions of its fields.
func (e *Enforcer) check(ctx context.Context, r *Request, root *permissions.Node, as user.Info, ordinary bool, ask Ask, d *Decision) (*outcome, error) {
	old, err := e.stored(ctx, r)
	if err != nil {
		return nil, err
	}
	body, err := r.pinned((&unstructured.Unstructured{Object: old}).GetResourceVersion())
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	change, err := e.dryRun(ctx, r, as, old, body)
	if err != nil {
		return nil, err
	}
	var fields []Changed
	if change.Type, err = e.schemas.of((&unstructured.Unstructured{Object: change.New}).GroupVersionKind()); err == nil {
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
		if _, err := e.send(ctx, r, r.http.URL.RawQuery, body, as); err != nil {
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

func (e *Enforcer) stored(ctx context.Context, r *Request) (map[string]any, error) {
	if r.Info.Verb == "create" {
		return nil, nil
	}
	resource := schema.GroupVersionResource{Group: r.Info.APIGroup, Version: r.Info.APIVersion, Resource: r.Info.Resource}
	namespace := r.Info.Namespace
	if r.Info.APIGroup == "" && r.Info.Resource == "namespaces" { // which is in itself to who authorizes
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

func (e *Enforcer) dryRun(ctx context.Context, r *Request, as user.Info, old map[string]any, body []byte) (Change, error) {
	c := Change{Old: old}
	query, err := url.ParseQuery(r.http.URL.RawQuery)
	if err == nil {
		c.Sent, err = r.object()
	}
	if err != nil {
		return c, apierrors.NewBadRequest(err.Error())
	}
	query.Set("dryRun", "All")
	updated, err := e.send(ctx, r, query.Encode(), body, as)
	if err != nil {
		return c, err
	}
	return c, utiljson.Unmarshal(updated, &c.New)
}
