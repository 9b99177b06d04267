package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// explainFlags describe a request, who sends it, and what is granted.
type explainFlags struct {
	as      scenarios.Impersonate
	asExtra []string

	by, node string
	byGroups []string

	asked    scenarios.Request // without its resource
	resource string

	gate, kubernetes, grants, kubeconfig string

	selection selectionFlags // only its folder
}

func (f *explainFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.by, "by", "", "who authenticates: a user, or system:serviceaccount:NAMESPACE:NAME")
	fl.StringArrayVar(&f.byGroups, "by-group", nil, "a group of the user who authenticates, besides system:authenticated")
	fl.StringVar(&f.node, "node", "", "the node that the service account's token is bound to")
	fl.StringVar(&f.as.User, "as", "", "the user to impersonate, as in kubectl --as")
	fl.StringArrayVar(&f.as.Groups, "as-group", nil, "a group to impersonate")
	fl.StringVar(&f.as.UID, "as-uid", "", "the UID to impersonate")
	fl.StringArrayVar(&f.asExtra, "as-user-extra", nil, "KEY=VALUE of extra to impersonate")
	fl.StringVar(&f.asked.Verb, "verb", "", "get, list, watch, create, update, patch, delete, deletecollection; with --path an HTTP method")
	fl.StringVar(&f.resource, "resource", "", "RESOURCE[.GROUP][/SUBRESOURCE], such as pods/exec or deployments.apps")
	fl.StringVar(&f.asked.Namespace, "namespace", "", "the namespace of the request (default: cluster-wide)")
	fl.StringVar(&f.asked.Name, "name", "", "the object's name")
	fl.StringVar(&f.asked.FieldSelector, "field-selector", "", "for list, watch and deletecollection")
	fl.StringVar(&f.asked.LabelSelector, "label-selector", "", "for list, watch and deletecollection")
	fl.StringVar(&f.asked.Path, "path", "", "a path that is not a resource, such as /apis, instead of --resource")
	fl.StringVar(&f.grants, "grants", "", "file of RBAC objects, or of grants as scenarios have them")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "ask the authorizer of this cluster instead")
	fl.StringVar(&f.kubernetes, "kubernetes", "", "version of the API server (default the newest known; with --kubeconfig the cluster's)")
	fl.StringVar(&f.selection.dir, "scenarios", "", "folder to find SCENARIO in instead of the built-in ones")
	fl.StringVar(&f.gate, "gate", "default", "ConstrainedImpersonation: on, off or default")
}

// questionFlags are the flags given that say what is asked and granted.
func (f *explainFlags) questionFlags(c *cobra.Command) (given []string) {
	c.Flags().Visit(func(flag *pflag.Flag) {
		if !slices.Contains([]string{"kubernetes", "gate", "scenarios"}, flag.Name) {
			given = append(given, flag.Name)
		}
	})
	return given
}

// check finds what is missing or contradicts itself.
func (f *explainFlags) check() error {
	_, asExtra := f.extra()
	switch {
	case f.selection.dir != "":
		return errors.New("--scenarios goes with the ID of a scenario")
	case f.by == "":
		return errors.New("--by is missing: it says who authenticates (or give the ID of a scenario)")
	case f.as.User == "" && f.as.UID == "" && len(f.as.Groups) == 0 && len(f.asExtra) == 0:
		return errors.New("--as is missing: it says who is impersonated")
	case f.node != "" && !strings.HasPrefix(f.by, "system:serviceaccount:"):
		return fmt.Errorf("--node %s: only a service account's token is bound to a node, and --by is %q", f.node, f.by)
	case len(f.byGroups) > 0 && strings.HasPrefix(f.by, "system:serviceaccount:"):
		return errors.New("--by-group: the groups of a service account cannot be chosen")
	case f.grants != "" && f.kubeconfig != "":
		return errors.New("--grants and --kubeconfig exclude each other: permissions come from one of them")
	case asExtra != nil:
		return asExtra
	case f.gate != "on" && f.gate != "off" && f.gate != "default":
		return fmt.Errorf("--gate %q is not one of on, off, default", f.gate)
	case f.asked.Path != "":
		return f.checkPath()
	case f.resource == "":
		return errors.New("--resource and --path are missing: one of them says what is requested")
	}
	return f.checkResource()
}

func (f *explainFlags) checkPath() error {
	verbs := []string{"get", "head", "post", "put", "patch", "delete", "options"}
	switch {
	case f.resource != "" || f.asked.Namespace != "" || f.asked.Name != "" || f.asked.FieldSelector != "" || f.asked.LabelSelector != "":
		return errors.New("--path excludes --resource, --namespace, --name and the selectors")
	case !strings.HasPrefix(f.asked.Path, "/"):
		return fmt.Errorf("--path %q does not begin with a slash", f.asked.Path)
	case !slices.Contains(verbs, f.asked.Verb):
		return fmt.Errorf("--verb %q is not one of %s, which go with --path", f.asked.Verb, strings.Join(verbs, ", "))
	}
	return nil
}

func (f *explainFlags) checkResource() error {
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	_, subresource, hasSub := strings.Cut(f.resource, "/")
	many := slices.Contains([]string{"list", "watch", "deletecollection"}, f.asked.Verb)
	switch {
	case !slices.Contains(verbs, f.asked.Verb):
		return fmt.Errorf("--verb %q is not one of %s", f.asked.Verb, strings.Join(verbs, ", "))
	case hasSub && (subresource == "" || strings.Contains(subresource, "/")), strings.HasPrefix(f.resource, "/"), strings.HasPrefix(f.resource, "."):
		return fmt.Errorf("--resource %q is not of the form RESOURCE[.GROUP][/SUBRESOURCE]", f.resource)
	case hasSub && f.asked.Name == "":
		return fmt.Errorf("--resource %s: a subresource needs --name", f.resource)
	case many && f.asked.Name != "":
		return fmt.Errorf("--verb %s has no --name (for one object: --field-selector metadata.name=%s)", f.asked.Verb, f.asked.Name)
	case f.asked.Verb == "create" && f.asked.Name != "" && !hasSub:
		return errors.New("--verb create has no --name: the API server does not look for one in the object")
	case !many && f.asked.Verb != "create" && f.asked.Name == "":
		return fmt.Errorf("--verb %s needs --name", f.asked.Verb)
	case !many && (f.asked.FieldSelector != "" || f.asked.LabelSelector != ""):
		return fmt.Errorf("--verb %s has no selectors", f.asked.Verb)
	}
	return nil
}

// extra is --as-user-extra as a map.
func (f *explainFlags) extra() (map[string][]string, error) {
	extra := map[string][]string{}
	for _, e := range f.asExtra {
		key, value, ok := strings.Cut(e, "=")
		if !ok {
			return nil, fmt.Errorf("--as-user-extra %q is not of the form KEY=VALUE", e)
		}
		extra[key] = append(extra[key], value)
	}
	return extra, nil
}

func (f *explainFlags) impersonate() *scenarios.Impersonate {
	f.as.Extra, _ = f.extra() // checked
	return &f.as
}

// requestor is who authenticates; a token that is bound to a node is one of a pod there.
func (f *explainFlags) requestor() scenarios.User {
	if rest, ok := strings.CutPrefix(f.by, "system:serviceaccount:"); ok {
		if namespace, name, ok := strings.Cut(rest, ":"); ok {
			sa := &scenarios.ServiceAccount{Namespace: namespace, Name: name, Node: f.node}
			if f.node != "" {
				sa.Pod = name
			}
			return oracle.RequestorOf(name, scenarios.Requestor{ServiceAccount: sa})
		}
	}
	return oracle.Authenticated(scenarios.User{Name: f.by, Groups: f.byGroups})
}

func (f *explainFlags) request() oracle.Request {
	r := f.asked
	full, subresource, _ := strings.Cut(f.resource, "/")
	r.Resource, r.APIGroup, _ = strings.Cut(full, ".")
	r.Subresource = subresource
	return oracle.RequestOf(&r)
}

// readGrants reads a file of RBAC objects and of grants: documents that are Kubernetes objects (a List of them
// too), and documents that are a list of grants or have one under "grants".
func readGrants(path string) (grants []scenarios.Grant, objects []map[string]any, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("--grants: %w", err)
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	for n := 1; ; n++ {
		doc, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = readDocument(doc, &grants, &objects)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("--grants %s, document %d: %w", path, n, err)
		}
	}
	if len(grants) == 0 && len(objects) == 0 {
		return nil, nil, fmt.Errorf("--grants %s has neither roles and bindings nor grants", path)
	}
	return grants, objects, nil
}

func readDocument(doc []byte, grants *[]scenarios.Grant, objects *[]map[string]any) error {
	var document any
	if err := yaml.Unmarshal(doc, &document); err != nil {
		return err
	}
	switch v := document.(type) {
	case nil:
		return nil
	case []any:
		return addGrants(doc, grants)
	case map[string]any:
		items, isList := v["items"].([]any)
		switch {
		case v["grants"] != nil:
			var file struct {
				Grants json.RawMessage `json:"grants"`
			}
			if err := yaml.UnmarshalStrict(doc, &file); err != nil {
				return err
			}
			return addGrants(file.Grants, grants)
		case isList:
			for _, item := range items {
				if o, ok := item.(map[string]any); ok {
					*objects = append(*objects, o)
				}
			}
			return nil
		case v["kind"] != nil:
			*objects = append(*objects, v)
			return nil
		}
	}
	return errors.New("it is neither a Kubernetes object nor a list of grants")
}

func addGrants(raw []byte, grants *[]scenarios.Grant) error {
	var list []scenarios.Grant
	if err := yaml.UnmarshalStrict(raw, &list); err != nil {
		return err
	}
	for _, g := range list {
		switch {
		case (g.Subject.User == "") == (g.Subject.Group == ""):
			return errors.New("a grant has a subject: {user: …} or {group: …}")
		case len(g.Verbs) == 0 || (len(g.Resources) == 0) == (len(g.NonResourceURLs) == 0):
			return errors.New("a grant has verbs, and either resources or nonResourceURLs")
		}
	}
	*grants = append(*grants, list...)
	return nil
}

// liveCluster answers reviews by those of a cluster. The first failure ends the questions.
type liveCluster struct {
	ctx    context.Context
	client kubernetes.Interface
	known  map[string]oracle.Answer
	err    error
}

func newLiveCluster(ctx context.Context, kubeconfig string) (*liveCluster, error) {
	if _, err := os.Stat(kubeconfig); err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", kubeconfig, err)
	}
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json" // of anything in between, the least demanding
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", kubeconfig, err)
	}
	return &liveCluster{ctx: ctx, client: client, known: map[string]oracle.Answer{}}, nil
}

// version is the cluster's, as "1.37".
func (l *liveCluster) version() (string, error) {
	v, err := l.client.Discovery().ServerVersion()
	if err != nil {
		return "", invalid(fmt.Errorf("the version of the cluster: %w", err))
	}
	return v.Major + "." + strings.TrimRight(v.Minor, "+"), nil
}

// authorize asks a SubjectAccessReview. IDs that stand for the real ones are in the extra of a service account;
// no ordinary authorizer looks at them.
func (l *liveCluster) authorize(spec authorizationv1.SubjectAccessReviewSpec) oracle.Answer {
	none := oracle.Answer{Decision: scenarios.NoOpinion}
	raw, err := json.Marshal(spec)
	if err != nil || l.err != nil {
		return none
	}
	if a, ok := l.known[string(raw)]; ok {
		return a
	}
	r, err := l.client.AuthorizationV1().SubjectAccessReviews().Create(l.ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		l.err = fmt.Errorf("asking the cluster: %w", err)
		return none
	}
	a := oracle.Answer{Decision: scenarios.NoOpinion, Reason: r.Status.Reason, Err: r.Status.EvaluationError}
	switch {
	case r.Status.Allowed:
		a.Decision, a.Source, a.Reason = scenarios.Allow, r.Status.Reason, ""
	case r.Status.Denied:
		a.Decision = scenarios.Deny
	}
	l.known[string(raw)] = a
	return a
}
