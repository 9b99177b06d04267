package advice

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/scenarios"
)

// kinds are those of RBAC, manifest is what an object of any of them fits.
var kinds = []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}

type manifest struct {
	metav1.TypeMeta
	Metadata        metav1.ObjectMeta       `json:"metadata"`
	Rules           []rbacv1.PolicyRule     `json:"rules"`
	AggregationRule *rbacv1.AggregationRule `json:"aggregationRule"`
	Subjects        []rbacv1.Subject        `json:"subjects"`
	RoleRef         rbacv1.RoleRef          `json:"roleRef"`
}

var (
	separator = regexp.MustCompile(`(?m)^---[ \t]*(#.*)?$\r?\n?`)
	// yamlError is what the parser says, who counts lines from the beginning of the document.
	yamlError = regexp.MustCompile(`^(error converting YAML to JSON: )?yaml: (line (\d+): )?`)
)

// ReadRBAC reads the roles and bindings of a file of manifests, YAML or JSON, Lists too. leftOut counts objects of
// other kinds. An error names file and line.
func ReadRBAC(file string, raw []byte) (objects []map[string]any, leftOut map[string]int, err error) {
	leftOut = map[string]int{}
	var next int
	for at := 0; at <= len(raw); at = next {
		doc, end := raw[at:], separator.FindIndex(raw[at:])
		if next = len(raw) + 1; end != nil {
			doc, next = doc[:end[0]], at+end[1]
		}
		found, err := readDocument(doc, leftOut)
		if err != nil {
			blank := len(doc) - len(bytes.TrimLeft(doc, " \t\r\n"))
			within := 1 + bytes.Count(doc[:blank], []byte{'\n'})
			if said := yamlError.FindStringSubmatch(err.Error()); len(said) > 0 && said[3] != "" {
				within, _ = strconv.Atoi(said[3])
			}
			return nil, nil, fmt.Errorf("%s:%d: %s", file, bytes.Count(raw[:at], []byte{'\n'})+within, yamlError.ReplaceAllString(err.Error(), ""))
		}
		objects = append(objects, found...)
	}
	return objects, leftOut, nil
}

var errNoObject = errors.New("not a Kubernetes object (expected one with apiVersion and kind)")

// readDocument reads one document: an object, or a list of them.
func readDocument(doc []byte, leftOut map[string]int) (objects []map[string]any, err error) {
	if !json.Valid(doc) {
		if doc, err = yaml.YAMLToJSON(doc); err != nil {
			return nil, err
		}
	}
	if string(bytes.TrimSpace(doc)) == "null" {
		return nil, nil
	}
	var list struct {
		metav1.TypeMeta
		Items []json.RawMessage
	}
	if err := json.Unmarshal(doc, &list); err != nil || list.Kind == "" {
		return nil, errNoObject
	}
	of, isList := strings.CutSuffix(list.Kind, "List")
	if !isList {
		list.Items = []json.RawMessage{doc}
	}
	for i, raw := range list.Items {
		o := map[string]any{}
		if err = json.Unmarshal(raw, &o); err == nil && isList && of != "" && o["kind"] == nil { // as the API answers
			o["kind"], o["apiVersion"] = of, list.APIVersion
		}
		if err == nil {
			err = checked(o, raw)
		}
		switch kind := scenarios.Text(o, "kind"); {
		case err != nil && isList:
			return nil, fmt.Errorf("item %d: %w", i+1, err)
		case err != nil:
			return nil, err
		case !slices.Contains(kinds, kind):
			leftOut[kind]++
		default:
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// checked tells what an API server would not take, as far as permissions depend on it.
func checked(o map[string]any, raw []byte) error {
	kind, version := scenarios.Text(o, "kind"), scenarios.Text(o, "apiVersion")
	known := slices.Contains(kinds, kind)
	switch {
	case kind == "":
		return errNoObject
	case !known && strings.HasPrefix(version, rbacv1.GroupName+"/"):
		return fmt.Errorf("unknown kind %q (expected %s)", kind, strings.Join(kinds, ", "))
	case !known:
		return nil
	case version != rbacv1.SchemeGroupVersion.String():
		return fmt.Errorf("a %s of apiVersion %q (expected %s)", kind, version, rbacv1.SchemeGroupVersion)
	}
	var m manifest
	var wrong *json.UnmarshalTypeError
	problem := ""
	if err := json.Unmarshal(raw, &m); errors.As(err, &wrong) {
		return fmt.Errorf("%s: %s is a %s (expected %s)", label(o), wrong.Field, wrong.Value, strings.NewReplacer("[]", "a list of ").Replace(wrong.Type.String()))
	} else if err != nil {
		return fmt.Errorf("%s: %w", label(o), err)
	}
	for i, s := range m.Subjects {
		switch known := s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind || s.Kind == rbacv1.ServiceAccountKind; {
		case !known || s.Name == "":
			problem = fmt.Sprintf("subject %d is %s %q (expected a User, Group or ServiceAccount with a name)", i+1, s.Kind, s.Name)
		case s.Kind == rbacv1.ServiceAccountKind && s.Namespace == "" && m.Metadata.Namespace == "": // kustomize adds it
			problem = fmt.Sprintf("subject %d, ServiceAccount %s, has no namespace", i+1, s.Name)
		}
	}
	switch {
	case m.Metadata.Name == "":
		problem = "it has no metadata.name"
	case strings.HasSuffix(kind, "Binding") && (m.RoleRef.Name == "" || m.RoleRef.Kind != "ClusterRole" && m.RoleRef.Kind != "Role"):
		problem = "its roleRef names no role (expected kind ClusterRole or Role, and a name)"
	case kind == "ClusterRoleBinding" && m.RoleRef.Kind != "ClusterRole":
		problem = fmt.Sprintf("its roleRef is Role %q (expected a ClusterRole: no other can be bound for all namespaces)", m.RoleRef.Name)
	}
	if problem != "" {
		return fmt.Errorf("%s: %s", label(o), problem)
	}
	return nil
}

// mostRounds is how deep roles may aggregate one another; those of Kubernetes are three deep (admin, edit, view).
const mostRounds = 8

// Aggregated are the objects with the rules of every ClusterRole that has an aggregationRule put together from those
// that it selects, by their names, as the controller of Kubernetes does
// (k8s.io/kubernetes/pkg/controller/clusterroleaggregation). One that selects none of the objects keeps its rules.
func Aggregated(objects []map[string]any) ([]map[string]any, error) {
	out := slices.SortedStableFunc(slices.Values(objects), func(a, b map[string]any) int {
		return strings.Compare(scenarios.Text(a, "metadata", "name"), scenarios.Text(b, "metadata", "name"))
	})
	for changed, round := true, 0; changed && round < mostRounds; round++ { // roles that aggregate may be aggregated
		changed = false
		for i, o := range out {
			if o["aggregationRule"] == nil {
				continue
			}
			rules, err := selected(out, o)
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

// selected are the rules of the roles that an aggregation rule selects, each once; nil if it selects no role.
func selected(objects []map[string]any, self map[string]any) (rules []any, err error) {
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
			u := unstructured.Unstructured{Object: o}
			if u.GetKind() != "ClusterRole" || u.GetName() == scenarios.Text(self, "metadata", "name") || !selector.Matches(labels.Set(u.GetLabels())) {
				continue
			}
			rules = slices.Concat([]any{}, rules)
			part, _ := o["rules"].([]any)
			for _, r := range part {
				if !slices.ContainsFunc(rules, func(known any) bool { return reflect.DeepEqual(known, r) }) {
					rules = append(rules, r)
				}
			}
		}
	}
	return rules, nil
}
