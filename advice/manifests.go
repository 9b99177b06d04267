package advice

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// kinds are the kinds of RBAC. manifest fits an object of any of them, as far as permissions depend on it.
var kinds = []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}

type manifest struct {
	Metadata struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
	} `json:"metadata"`
	Rules           []rbacv1.PolicyRule     `json:"rules"`
	AggregationRule *rbacv1.AggregationRule `json:"aggregationRule"`
	Subjects        []rbacv1.Subject        `json:"subjects"`
	RoleRef         rbacv1.RoleRef          `json:"roleRef"`
}

var (
	separator = regexp.MustCompile(`^---[ \t]*(#.*)?\r?\n?$`)
	// yamlError matches an error of the parser, which counts lines from the beginning of the document.
	yamlError = regexp.MustCompile(`^(error converting YAML to JSON: )?yaml: (line (\d+): )?`)
)

type document struct {
	line    int // its first
	text    []byte
	objects []map[string]any
	err     error
}

// ReadRBAC reads the roles and bindings of a file of manifests, YAML or JSON, Lists too. leftOut counts other objects.
func ReadRBAC(file string, raw []byte) (objects []map[string]any, leftOut map[string]int, err error) {
	documents := seq.MapInParallel(splitDocuments(raw), func(d document) document {
		d.err = d.read()
		return d
	})
	leftOut = map[string]int{}
	for _, d := range documents {
		if d.err != nil {
			return nil, nil, d.explain(file)
		}
		for _, o := range d.objects {
			if kind := scenarios.Text(o, "kind"); !slices.Contains(kinds, kind) {
				leftOut[kind]++
			} else {
				objects = append(objects, o)
			}
		}
	}
	return objects, leftOut, nil
}

// splitDocuments returns the documents of a file, which lines of three dashes separate.
func splitDocuments(raw []byte) []document {
	documents := []document{{line: 1}}
	begin, end, line := 0, 0, 1
	for text := range bytes.Lines(raw) {
		end += len(text)
		line++
		if bytes.HasPrefix(text, []byte("---")) && separator.Match(text) {
			documents = append(documents, document{line: line})
			begin = end
		}
		documents[len(documents)-1].text = raw[begin:end]
	}
	return documents
}

// explain returns the error of the document with its file and line. The parser counts from the beginning of the
// document. An error without a line is about the first line that is not empty.
func (d *document) explain(file string) error {
	space := len(d.text) - len(bytes.TrimLeft(d.text, " \t\r\n"))
	lineOffset := bytes.Count(d.text[:space], []byte{'\n'})
	if m := yamlError.FindStringSubmatch(d.err.Error()); len(m) > 0 && m[3] != "" {
		lineOffset, _ = strconv.Atoi(m[3])
		lineOffset--
	}
	return fmt.Errorf("%s:%d: %s", file, d.line+lineOffset, yamlError.ReplaceAllString(d.err.Error(), ""))
}

var errNoObject = errors.New("not a Kubernetes object (expected one with apiVersion and kind)")

// read decodes the objects of the document: the document itself, or the items of a List.
func (d *document) read() (err error) {
	text := d.text
	if !json.Valid(text) {
		if text, err = yaml.YAMLToJSON(text); err != nil {
			return err
		}
	}
	var whole any
	if err := json.Unmarshal(text, &whole); err != nil || whole == nil {
		return err
	}
	object, _ := whole.(map[string]any)
	itemKind, isList := strings.CutSuffix(scenarios.Text(object, "kind"), "List")
	if !isList {
		d.objects = []map[string]any{object}
		return checkObject(object)
	}
	items, ok := object["items"].([]any)
	if !ok && object["items"] != nil {
		return errNoObject
	}
	for i, item := range items {
		o, _ := item.(map[string]any)
		if itemKind != "" && o != nil && o["kind"] == nil { // as the API answers
			o["kind"], o["apiVersion"] = itemKind, object["apiVersion"]
		}
		if err := checkObject(o); err != nil {
			return fmt.Errorf("item %d: %w", i+1, err)
		}
		d.objects = append(d.objects, o)
	}
	return nil
}

// checkObject returns why an API server would refuse an object, as far as permissions depend on it.
func checkObject(o map[string]any) error {
	kind, version := scenarios.Text(o, "kind"), scenarios.Text(o, "apiVersion")
	isKnown := slices.Contains(kinds, kind)
	switch {
	case kind == "":
		return errNoObject
	case !isKnown && strings.HasPrefix(version, rbacv1.GroupName+"/"):
		return fmt.Errorf("unknown kind %q (expected %s)", kind, strings.Join(kinds, ", "))
	case !isKnown:
		return nil
	case version != rbacv1.SchemeGroupVersion.String():
		return fmt.Errorf("a %s of apiVersion %q (expected %s)", kind, version, rbacv1.SchemeGroupVersion)
	}
	var m manifest
	if apiruntime.DefaultUnstructuredConverter.FromUnstructured(o, &m) != nil { // the messages of the JSON decoder are meant for people
		raw, err := json.Marshal(o)
		err = cmp.Or(err, json.Unmarshal(raw, &m))
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			err = fmt.Errorf(
				"%s is a %s (expected %s)",
				wrong.Field,
				wrong.Value,
				strings.NewReplacer("[]", "a list of ").Replace(wrong.Type.String()),
			)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", label(o), err)
		}
	}
	if problem := m.problem(kind); problem != "" {
		return fmt.Errorf("%s: %s", label(o), problem)
	}
	return nil
}

// problem returns why an API server would refuse a role or binding, or "" if it accepts it.
func (m *manifest) problem(kind string) string {
	subjectKinds := []string{rbacv1.UserKind, rbacv1.GroupKind, rbacv1.ServiceAccountKind}
	for i, s := range m.Subjects {
		hasNamespace := s.Namespace != "" || m.Metadata.Namespace != "" // kustomize adds it
		switch {
		case s.Name == "" || !slices.Contains(subjectKinds, s.Kind):
			return fmt.Sprintf("subject %d is %s %q (expected a User, Group or ServiceAccount with a name)", i+1, s.Kind, s.Name)
		case s.Kind == rbacv1.ServiceAccountKind && !hasNamespace:
			return fmt.Sprintf("subject %d, ServiceAccount %s, has no namespace", i+1, s.Name)
		}
	}
	isRole := m.RoleRef.Name != "" && slices.Contains([]string{"ClusterRole", "Role"}, m.RoleRef.Kind)
	switch {
	case m.Metadata.Name == "":
		return "it has no metadata.name"
	case strings.HasSuffix(kind, "Binding") && !isRole:
		return "its roleRef names no role (expected kind ClusterRole or Role, and a name)"
	case kind == "ClusterRoleBinding" && m.RoleRef.Kind != "ClusterRole":
		return fmt.Sprintf("its roleRef is Role %q (expected a ClusterRole: no other can be bound for all namespaces)", m.RoleRef.Name)
	}
	return ""
}

// mostRounds is how deep roles may aggregate one another. Those of Kubernetes are three deep (admin, edit, view).
const mostRounds = 8

// Aggregated returns the objects with the rules of every ClusterRole that has an aggregationRule. They are put
// together, by name, from the roles that it selects, as the controller of Kubernetes does
// (k8s.io/kubernetes/pkg/controller/clusterroleaggregation). A role that selects none of the objects keeps its rules.
func Aggregated(objects []map[string]any) ([]map[string]any, error) {
	out := slices.SortedStableFunc(slices.Values(objects), func(a, b map[string]any) int {
		return strings.Compare(scenarios.Text(a, "metadata", "name"), scenarios.Text(b, "metadata", "name"))
	})
	for changed, round := true, 0; changed && round < mostRounds; round++ { // a role that aggregates may itself be aggregated
		changed = false
		for i, o := range out {
			if o["aggregationRule"] == nil {
				continue
			}
			rules, err := selectRules(out, o)
			if err != nil {
				return nil, fmt.Errorf("%s: aggregationRule: %w", label(o), err)
			}
			if rules != nil && !reflect.DeepEqual(rules, o["rules"]) {
				out[i] = maps.Clone(o)
				out[i]["rules"], changed = rules, true
			}
		}
	}
	return out, nil
}

// selectRules returns the rules of the roles that an aggregation rule selects, each once, or nil if it selects no rule.
func selectRules(objects []map[string]any, self map[string]any) (rules []any, err error) {
	raw, err := json.Marshal(self["aggregationRule"])
	var rule rbacv1.AggregationRule
	if err = errors.Join(err, json.Unmarshal(raw, &rule)); err != nil {
		return nil, err
	}
	for _, s := range rule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&s)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			if isSelected(o, self, selector) {
				rules = appendRules(rules, o)
			}
		}
	}
	return rules, nil
}

// isSelected reports whether an object is a ClusterRole with these labels, and not the aggregating role itself.
func isSelected(o, self map[string]any, selector labels.Selector) bool {
	u := unstructured.Unstructured{Object: o}
	isSelf := u.GetName() == scenarios.Text(self, "metadata", "name")
	return !isSelf && u.GetKind() == "ClusterRole" && selector.Matches(labels.Set(u.GetLabels()))
}

// appendRules returns a copy of rules with those rules of a role that are not among them.
func appendRules(rules []any, role map[string]any) []any {
	out := slices.Clone(rules)
	part, _ := role["rules"].([]any)
	for _, r := range part {
		if !slices.ContainsFunc(out, func(other any) bool { return reflect.DeepEqual(other, r) }) {
			out = append(out, r)
		}
	}
	return out
}

// LegacyRule is a rule that currently grants somebody legacy impersonation.
type LegacyRule struct {
	Holder
	// Resources are the resources of impersonation in the rule: users, groups, serviceaccounts, uids, userextras.
	Resources []string
	NeededFor []Kept // the kept impersonations that depend on it
	// Used means that the subject was seen to impersonate at all.
	Used bool
}

// Legacy returns every rule in a cluster's roles that grants legacy impersonation, with what depends on it.
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

// label returns a role or binding for people.
func label(object map[string]any) string {
	u := unstructured.Unstructured{Object: object}
	return u.GetKind() + " " + strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/")
}

// RBAC returns the grants as roles with their bindings. Each requestor has one for the cluster and one for each
// namespace.
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

// objectName returns a name that a path can contain (k8s.io/apimachinery/pkg/api/validation/path,
// IsValidPathSegmentName).
func objectName(user string) string {
	return "impersonation:" + strings.NewReplacer("/", "-", "%", "-", "\n", "-").Replace(strings.TrimPrefix(user, accountHead))
}

// Manifests returns the objects as YAML documents that kubectl takes.
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
