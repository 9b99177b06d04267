package enforcer

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/granular/permissions"
)

// Options say what an enforcer stands before.
type Options struct {
	// Backend is the API server, with the enforcer's own rights: to review tokens and
	// access, to read objects, and to impersonate.
	Backend *rest.Config
	// Group is a group with every right, which is added to those of an actor whose request is carried out because
	// of granular permissions. Who is in it otherwise has every right, too.
	Group string
	// Descriptions are the permissions of fields.
	Descriptions *permissions.Set
	// Steps are those of the reference unless some of them are replaced.
	Steps Steps
	// Record, if set, is given every decision. It may be called at any time from several goroutines.
	Record func(Decision)
}

// Steps are the parts of the enforcer that a faulty enforcer has wrong.
type Steps struct {
	// Checked says whether the fields of a request are checked.
	Checked func(*Request) bool
	// Ordinary says whether the ordinary permission is asked for.
	Ordinary bool
	// Changed are the fields that a request changes.
	Changed func(root *permissions.Node, c Change) ([]Changed, error)
	// Excluded keeps those that the ordinary permission does not contain.
	Excluded func([]Changed) []Changed
	// Decide asks for their permissions.
	Decide func([]Changed, Ask) (*Missing, error)
	// Attributes are what is asked about.
	Attributes func(r *Request, verb string) authorizer.AttributesRecord
	// Message is what a client is told.
	Message func(r *Request, m *Missing) string
	// Early carries requests out before their fields are checked.
	Early bool
}

// Reference is the steps as KEP-3617 has them.
func Reference() Steps {
	return Steps{
		Checked:  func(*Request) bool { return true },
		Ordinary: true,
		Changed:  ChangedFields,
		Excluded: ExcludedFields,
		Decide:   Decide,
		Attributes: func(r *Request, verb string) authorizer.AttributesRecord {
			return r.Attributes(verb)
		},
		Message: message,
	}
}

// ChangedFields are the fields that a request changes, with their permissions.
func ChangedFields(root *permissions.Node, c Change) ([]Changed, error) {
	paths, err := c.Paths()
	if err != nil {
		return nil, err
	}
	out := make([]Changed, 0, len(paths))
	for _, p := range paths {
		out = append(out, Changed{Path: strings.TrimPrefix(p.String(), "."), Chain: ChainOf(root, p)})
	}
	return out, nil
}

// ExcludedFields keeps the fields that the ordinary permission does not contain.
func ExcludedFields(fields []Changed) []Changed {
	return slices.DeleteFunc(slices.Clone(fields), func(f Changed) bool { return !f.Chain.Excluded() })
}

// Enforcer is the proxy, as an HTTP handler.
type Enforcer struct {
	o       Options
	client  kubernetes.Interface
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
	transport, err := rest.TransportFor(o.Backend)
	if err != nil {
		return nil, err
	}
	u, _, err := rest.DefaultServerUrlFor(o.Backend)
	if err != nil {
		return nil, err
	}
	e := &Enforcer{o: o, client: client, url: u, forward: transport}
	e.schemas.get = e.read
	return e, nil
}

// authenticate asks the API server who sent a request: nil for nobody it knows.
func (e *Enforcer) authenticate(ctx context.Context, r *http.Request) (user.Info, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, nil
	}
	review, err := e.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: strings.TrimSpace(token)}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if !review.Status.Authenticated {
		return nil, nil
	}
	out := &user.DefaultInfo{Name: review.Status.User.Username, UID: review.Status.User.UID, Groups: review.Status.User.Groups, Extra: map[string][]string{}}
	for key, values := range review.Status.User.Extra {
		out.Extra[key] = values
	}
	return out, nil
}

// asker asks the cluster's authorizer, and keeps what it was asked.
func (e *Enforcer) asker(ctx context.Context, r *Request, d *Decision) Ask {
	return func(verb string) (bool, error) {
		a := e.o.Steps.Attributes(r, verb)
		extra := map[string]authorizationv1.ExtraValue{}
		for key, values := range a.User.GetExtra() {
			extra[key] = values
		}
		review, err := e.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: a.User.GetName(), UID: a.User.GetUID(), Groups: a.User.GetGroups(), Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: a.APIGroup, Version: a.APIVersion, Resource: a.Resource, Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name,
			},
		}}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("asking for %s: %w", verb, err)
		}
		d.Checks = append(d.Checks, Check{
			Verb: verb, Group: a.APIGroup, Resource: a.Resource, Subresource: a.Subresource,
			Namespace: a.Namespace, Name: a.Name, Allowed: review.Status.Allowed,
		})
		return review.Status.Allowed, nil
	}
}
