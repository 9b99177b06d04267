package advice

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// LegacyRule is a rule that grants somebody legacy impersonation today.
type LegacyRule struct {
	Holder
	// Resources are those of impersonation among the rule's: users, groups, serviceaccounts, uids, userextras.
	Resources []string
	// NeededFor are the kept impersonations that rest on it.
	NeededFor []Kept
	// Used says that the subject was seen to impersonate at all.
	Used bool
}

// Legacy says of every rule in a cluster's roles that grants legacy impersonation whether something rests on it.
func (a *Advice) Legacy(objects []map[string]any) (out []LegacyRule) {
	holders, _ := Holders(objects)
	for _, h := range holders {
		l := LegacyRule{Holder: h}
		var grants []scenarios.Grant
		for _, p := range h.Powers {
			if p.Mode == oracle.Legacy && p.Never == "" {
				l.Resources, grants = append(l.Resources, p.Whom...), append(grants, p.Grant)
			}
		}
		if len(grants) == 0 {
			continue
		}
		for _, k := range a.Kept {
			if slices.ContainsFunc(k.legacyChecks(), func(spec authorizationv1.SubjectAccessReviewSpec) bool { return scenarios.Covered(grants, spec) }) {
				l.NeededFor, l.Used = append(l.NeededFor, k), true
			}
		}
		l.Used = l.Used || slices.ContainsFunc(a.Requestors, func(r Requestor) bool { return r.Name == h.Subject.User })
		out = append(out, l)
	}
	return out
}

// label is a role or binding for people.
func label(object map[string]any) string {
	u := unstructured.Unstructured{Object: object}
	return u.GetKind() + " " + strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/")
}

// RBAC are the grants as roles with their bindings: of each requestor one for the cluster and one for each namespace.
func RBAC(grants []scenarios.Grant) []scenarios.RBACObject {
	objects := scenarios.RenderRBAC(&scenarios.Scenario{Grants: grants})
	taken := map[string]int{}
	for i := range objects {
		o := &objects[i]
		name := objectName(o.Subject.User + o.Subject.Group)
		if taken[o.Namespace+"/"+name]++; taken[o.Namespace+"/"+name] > 1 {
			name += fmt.Sprintf("-%d", taken[o.Namespace+"/"+name])
		}
		o.Name = name
	}
	return objects
}

// objectName is a name that a path can hold (k8s.io/apimachinery/pkg/api/validation/path, IsValidPathSegmentName).
func objectName(user string) string {
	return "impersonation:" + strings.NewReplacer("/", "-", "%", "-", "\n", "-").Replace(strings.TrimPrefix(user, accountHead))
}

// Manifests are the objects as YAML documents that kubectl takes.
func Manifests(objects []scenarios.RBACObject) ([]byte, error) {
	var out bytes.Buffer
	for _, o := range objects {
		for _, object := range o.Objects() {
			raw, err := yaml.Marshal(object)
			if err != nil {
				return nil, err
			}
			if out.Len() > 0 {
				out.WriteString("---\n")
			}
			out.Write(raw)
		}
	}
	return out.Bytes(), nil
}
