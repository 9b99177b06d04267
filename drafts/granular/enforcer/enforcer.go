// Package enforcer is a reference for the checks of KEP-3617 (Fine-Grained Authorization). It is an authenticating
// proxy before a real API server, and asks for the permissions of the fields that a request changes. It is not an API
// server: where the KEP has a step inside the server, the proxy does the most similar step that is possible outside.
// docs/granular-kep.md says where the two must differ.
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// Options are the options of an enforcer.
type Options struct {
	// Backend reaches the API server with the rights of the enforcer: to review tokens and access, to read objects, and
	// to impersonate.
	Backend *rest.Config
	// Group is a group with every right. It is added to the groups of an actor whose request is carried out because of
	// granular permissions. Every other member of the group has every right, too.
	Group        string
	Descriptions *permissions.Set // the permissions of fields
	Steps        Steps            // the steps of the reference, unless some are replaced
	// Record is called with every decision, if it is set. It may be called from several goroutines at the same time.
	Record func(Decision)
}

// Steps are the parts of the enforcer that a faulty enforcer has wrong.
type Steps struct {
	// Checked reports whether the fields of a request are checked.
	Checked func(*Request) bool
	// Ordinary is set if the enforcer asks for the ordinary permission.
	Ordinary bool
	Changed  func(root *permissions.Node, c Change) ([]ChangedField, error) // returns the fields that a request changes
	// Excluded returns the fields that the ordinary permission does not contain.
	Excluded func([]ChangedField) []ChangedField
	// Decide asks for the permissions of fields.
	Decide     func([]ChangedField, Ask) (*MissingPermission, error)
	Attributes func(r *Request, verb string) authorizer.AttributesRecord // returns what the authorizer is asked
	Message    func(r *Request, m *MissingPermission) string             // returns the message of a denial
	// Early is set if requests are carried out before their fields are checked.
	Early bool
}

// Reference returns the steps as KEP-3617 has them.
func Reference() Steps {
	return Steps{
		Checked:  func(*Request) bool { return true },
		Ordinary: true,
		Changed:  ChangedFields,
		Excluded: func(fields []ChangedField) []ChangedField {
			return slices.DeleteFunc(slices.Clone(fields), func(f ChangedField) bool { return !f.Chain.Excluded() })
		},
		Decide:     Decide,
		Attributes: (*Request).Attributes, Message: message,
	}
}

// ChangedFields returns the fields that a request changes, with their permissions.
func ChangedFields(root *permissions.Node, c Change) ([]ChangedField, error) {
	whole, err := c.Paths()
	if err != nil {
		return nil, err
	}
	var paths []fieldpath.Path
	for _, p := range whole {
		paths = append(paths, c.splitAtomic(root, p)...)
	}
	return seq.Map(paths, func(p fieldpath.Path) ChangedField {
		return ChangedField{Path: strings.TrimPrefix(p.String(), "."), Chain: ChainOf(root, p, c.New)}
	}), nil
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

// New returns an enforcer.
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
	return &Enforcer{
		o:       o,
		client:  client,
		objects: objects,
		url:     u,
		forward: transport,
		schemas: schemas{Client: client.Discovery().OpenAPIV3(), kept: map[schema.GroupVersion]published{}},
	}, nil
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
			Verb:        verb,
			Group:       a.APIGroup,
			Version:     a.APIVersion,
			Resource:    a.Resource,
			Subresource: a.Subresource,
			Namespace:   a.Namespace,
			Name:        a.Name,
		}}
		extra := map[string]authorizationv1.ExtraValue{}
		for key, values := range a.User.GetExtra() {
			extra[key] = values
		}
		review, err := e.client.AuthorizationV1().
			SubjectAccessReviews().
			Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               a.User.GetName(),
				UID:                a.User.GetUID(),
				Groups:             a.User.GetGroups(),
				Extra:              extra,
				ResourceAttributes: &check.ResourceAttributes,
			}}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("asking for %s: %w", verb, err)
		}
		check.Allowed = review.Status.Allowed
		d.Checks = append(d.Checks, check)
		return check.Allowed, nil
	}
}

// Check is one question to the authorizer, with its answer.
type Check struct {
	authorizationv1.ResourceAttributes `json:",inline"`
	Allowed                            bool `json:"allowed"`
}

// Decision is the decision about a request whose fields are checked.
type Decision struct {
	User string `json:"user"`
	Verb string `json:"verb"`
	// Checks are the questions in the order in which they were asked, the ordinary permission first.
	Checks []Check `json:"checks"`
	// Granular is set if the actor does not have the ordinary permission, but has GeneralVerb.
	Granular bool               `json:"granular,omitempty"`
	Fields   int                `json:"fields"`            // number of fields that change; -1 if it was not computed
	Missing  *MissingPermission `json:"missing,omitempty"` // the field for which the request was denied
}

// message returns the message for a client that lacks the permission of a field. It names one missing permission only:
// to find all of them, the enforcer would have to make as many checks as the client likes (KEP-3617, step 8).
func message(r *Request, m *MissingPermission) string {
	verb, reason := m.Verb, ""
	if verb == "" {
		verb, reason = r.Info.Verb, fmt.Sprintf("no granular permission covers %s", m.Field)
	}
	return responsewriters.ForbiddenStatusError(r.Attributes(verb), reason).ErrStatus.Message
}
