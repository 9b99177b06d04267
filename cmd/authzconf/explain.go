package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/scenarios"
)

func newExplain() *cobra.Command {
	var f explainFlags
	c := commandWith("explain [SCENARIO]", func(c *cobra.Command, args []string) error {
		if len(args) == 1 {
			return f.scenario(c, args[0])
		}
		return f.question(c.Context(), c.OutOrStdout())
	})
	f.register(c)
	return c
}

func (f *explainFlags) question(ctx context.Context, out io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	config, notes, err := f.config()
	if err != nil {
		return err
	}
	var live *liveCluster
	if f.kubeconfig != "" {
		if live, err = newLiveCluster(ctx, f.kubeconfig, ""); err != nil {
			return err
		}
		config.Chain = []oracle.Authorizer{{Authorize: live.authorize}}
		if f.kubernetes == "" {
			if config.Kubernetes, err = live.version(); err != nil {
				return err
			}
			notes = append(notes, "The gate cannot be read from the cluster: this is the version's default, unless --gate says otherwise.")
		}
	}
	server, err := oracle.New(config)
	if err != nil {
		return err
	}
	notes = append(notes, seq.Map(server.Dangling(), func(d string) string { return "In the file, " + d + "." })...)
	imp := &f.as
	imp.Extra, _ = f.extra() // checked
	text := server.Explain(server.Do(f.requestor(), imp, f.request()), imp, f.request())
	if live != nil && live.err != nil {
		return invalid(live.err)
	}
	return writeExplained(out, config, server, append(notes, text))
}

func writeExplained(out io.Writer, config oracle.Config, server *oracle.Server, parts []string) error {
	text := fmt.Sprintf("kube-apiserver %s, ConstrainedImpersonation %s\n", config.Kubernetes, server.Gate())
	for _, p := range parts {
		text += strings.TrimRight(p, "\n") + "\n"
	}
	_, err := io.WriteString(out, text)
	return err
}

func (f *explainFlags) config() (config oracle.Config, notes []string, err error) {
	config.Gate = f.gate
	release, err := local.ParseRelease(cmp.Or(f.kubernetes, matrix.Newest()))
	if err != nil {
		return config, nil, err
	}
	config.Kubernetes = release.Minor
	switch {
	case f.grants != "":
		config.Objects, err = readGrants(f.grants)
	case f.kubeconfig == "":
		notes = []string{"Only what every cluster grants to everybody is granted: give --grants or --kubeconfig for more."}
	}
	return config, notes, err
}

func (f *explainFlags) scenario(c *cobra.Command, id string) error {
	texts, err := f.selection.load()
	if err != nil {
		return err
	}
	s, ok := texts.Set.Get(strings.TrimSuffix(id, ".yaml"))
	if !ok {
		return fmt.Errorf("unknown scenario %q (authzconf list shows them all)", id)
	}
	config, _, err := f.config()
	if err != nil {
		return err
	}
	facts := scenarios.Facts{
		Kubernetes:   config.Kubernetes,
		Binary:       config.Kubernetes,
		Gate:         config.Gate,
		Chain:        s.Requires.Chain,
		Capabilities: scenarios.AllCapabilities(),
	}
	if facts.Gate == scenarios.GateDefault {
		if facts.Gate = s.Requires.Gate; facts.Gate == scenarios.GateAny {
			facts.Gate = scenarios.GateOn
		}
	}
	if ok, _, why := s.Selected(facts); !ok {
		return fmt.Errorf("%s %s (--kubernetes and --gate choose another)", s.ID, why)
	}
	server, err := oracle.ServerFor(s, facts, fixtures.FS)
	if err != nil {
		return err
	}
	text, err := oracle.ExplainScenario(s, server, fixtures.FS)
	if err != nil {
		return err
	}
	config.Kubernetes = facts.Kubernetes
	return writeExplained(c.OutOrStdout(), config, server, []string{s.ID + ": " + s.Description, "", text})
}

type explainFlags struct {
	as      scenarios.Impersonate
	asExtra []string

	by, node string
	byGroups []string

	requested scenarios.Request // without its resource
	resource  string

	gate                           scenarios.Gate
	kubernetes, grants, kubeconfig string

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
	fl.StringVar(
		&f.requested.Verb,
		"verb",
		"",
		"get, list, watch, create, update, patch, delete, deletecollection; with --path an HTTP method",
	)
	fl.StringVar(&f.resource, "resource", "", "RESOURCE[.GROUP][/SUBRESOURCE], such as pods/exec or deployments.apps")
	fl.StringVar(&f.requested.Namespace, "namespace", "", "the namespace of the request (default: cluster-wide)")
	fl.StringVar(&f.requested.Name, "name", "", "the object's name")
	fl.StringVar(&f.requested.FieldSelector, "field-selector", "", "for list, watch and deletecollection")
	fl.StringVar(&f.requested.LabelSelector, "label-selector", "", "for list, watch and deletecollection")
	fl.StringVar(&f.requested.Path, "path", "", "a path that is not a resource, such as /apis, instead of --resource")
	fl.StringVar(&f.grants, "grants", "", "file of roles and bindings")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "ask the authorizer of this cluster instead")
	fl.StringVar(&f.kubernetes, "kubernetes", "", "version of the API server (default the newest known; with --kubeconfig the cluster's)")
	fl.StringVar(&f.selection.dir, "scenarios", "", "folder to find SCENARIO in instead of the built-in ones")
	f.gate = scenarios.GateDefault
	fl.Var(&f.gate, "gate", "ConstrainedImpersonation: on, off or default")
}

func (f *explainFlags) check() error {
	_, asExtra := f.extra()
	namesNobody := f.as.User == "" && f.as.UID == "" && len(f.as.Groups) == 0 && len(f.asExtra) == 0
	switch {
	case f.by == "":
		return errors.New("--by is missing: it says who authenticates (or give the ID of a scenario)")
	case namesNobody:
		return errors.New("--as is missing: it says who is impersonated")
	case f.node != "" && !strings.HasPrefix(f.by, "system:serviceaccount:"):
		return fmt.Errorf("--node %s: only a service account's token is bound to a node, and --by is %q", f.node, f.by)
	case len(f.byGroups) > 0 && strings.HasPrefix(f.by, "system:serviceaccount:"):
		return errors.New("--by-group: the groups of a service account cannot be chosen")
	case asExtra != nil:
		return asExtra
	case f.requested.Namespace != "" && len(validation.IsDNS1123Label(f.requested.Namespace)) > 0:
		return fmt.Errorf("--namespace %q is not the name of a namespace", f.requested.Namespace)
	case !slices.Contains([]scenarios.Gate{scenarios.GateOn, scenarios.GateOff, scenarios.GateDefault}, f.gate):
		return fmt.Errorf("--gate %q is not one of on, off, default", f.gate)
	case f.requested.Path != "":
		return f.checkPath()
	case f.resource == "":
		return errors.New("--resource and --path are missing: one of them says what is requested")
	}
	return f.checkResource()
}

func (f *explainFlags) checkPath() error {
	verbs := []string{"get", "head", "post", "put", "patch", "delete", "options"}
	switch {
	case !strings.HasPrefix(f.requested.Path, "/"):
		return fmt.Errorf("--path %q does not begin with a slash", f.requested.Path)
	case !slices.Contains(verbs, f.requested.Verb):
		return fmt.Errorf("--verb %q is not one of %s, which go with --path", f.requested.Verb, strings.Join(verbs, ", "))
	}
	return nil
}

func (f *explainFlags) checkResource() error {
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	_, subresource, hasSub := strings.Cut(f.resource, "/")
	isBadSubresource := subresource == "" || strings.Contains(subresource, "/")
	isBadResource := strings.HasPrefix(f.resource, "/") || strings.HasPrefix(f.resource, ".")
	isCollection := slices.Contains([]string{"list", "watch", "deletecollection"}, f.requested.Verb)
	selects := f.requested.FieldSelector != "" || f.requested.LabelSelector != ""
	switch {
	case !slices.Contains(verbs, f.requested.Verb):
		return fmt.Errorf("--verb %q is not one of %s", f.requested.Verb, strings.Join(verbs, ", "))
	case hasSub && isBadSubresource, isBadResource:
		return fmt.Errorf("--resource %q is not of the form RESOURCE[.GROUP][/SUBRESOURCE]", f.resource)
	case hasSub && f.requested.Name == "":
		return fmt.Errorf("--resource %s: a subresource needs --name", f.resource)
	case isCollection && f.requested.Name != "":
		return fmt.Errorf("--verb %s has no --name (for one object: --field-selector metadata.name=%s)", f.requested.Verb, f.requested.Name)
	case f.requested.Verb == "create" && f.requested.Name != "" && !hasSub:
		return errors.New("--verb create has no --name: the API server does not look for one in the object")
	case !isCollection && f.requested.Verb != "create" && f.requested.Name == "":
		return fmt.Errorf("--verb %s needs --name", f.requested.Verb)
	case !isCollection && selects:
		return fmt.Errorf("--verb %s has no selectors", f.requested.Verb)
	}
	if _, err := fields.ParseSelector(f.requested.FieldSelector); err != nil {
		return fmt.Errorf("--field-selector %q: expected FIELD=VALUE or FIELD!=VALUE, separated by commas", f.requested.FieldSelector)
	}
	if _, err := labels.Parse(f.requested.LabelSelector); err != nil {
		return fmt.Errorf("--label-selector %q: %w", f.requested.LabelSelector, err)
	}
	return nil
}

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

// requestor returns who authenticates. A token that is bound to a node is that of a pod there.
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
	r := f.requested
	full, subresource, _ := strings.Cut(f.resource, "/")
	r.Resource, r.APIGroup, _ = strings.Cut(full, ".")
	r.Subresource = subresource
	return oracle.RequestOf(&r)
}

func readGrants(path string) ([]map[string]any, error) {
	raw, err := filing.Input(path)
	if err != nil {
		return nil, fmt.Errorf("--grants: %w", err)
	}
	objects, _, err := advice.ReadRBAC(path, raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--grants: %w", err)
	case len(objects) == 0:
		return nil, fmt.Errorf("--grants %s has neither roles nor bindings", path)
	}
	return objects, nil
}

// liveCluster answers reviews by asking a cluster. The first failure ends the questions.
type liveCluster struct {
	*existing.Cluster
	ctx    context.Context
	client kubernetes.Interface

	mu    sync.Mutex
	known map[string]oracle.AuthorizerDecision
	err   error
}

func newLiveCluster(ctx context.Context, kubeconfig, context string) (*liveCluster, error) {
	cluster, err := existing.Open(kubeconfig, context, "")
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(cluster.Admin())
	return &liveCluster{Cluster: cluster, ctx: ctx, client: client, known: map[string]oracle.AuthorizerDecision{}}, err
}

func (l *liveCluster) version() (string, error) {
	v, err := l.client.Discovery().ServerVersion()
	if err != nil {
		return "", invalid(fmt.Errorf("the version of the cluster: %w", err))
	}
	return v.Major + "." + strings.TrimRight(v.Minor, "+"), nil
}

// authorize asks a SubjectAccessReview. The extra of a service account has made-up IDs, which no ordinary authorizer
// looks at.
func (l *liveCluster) authorize(spec authorizationv1.SubjectAccessReviewSpec) oracle.AuthorizerDecision {
	none := oracle.AuthorizerDecision{Decision: scenarios.NoOpinion}
	raw, err := json.Marshal(spec)
	l.mu.Lock()
	a, ok := l.known[string(raw)]
	failed := err != nil || l.err != nil
	l.mu.Unlock()
	if ok || failed {
		return cmp.Or(a, none)
	}
	r, err := l.client.AuthorizationV1().
		SubjectAccessReviews().
		Create(l.ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.err = cmp.Or(l.err, fmt.Errorf("asking the cluster: %w", err))
		return none
	}
	a = oracle.AuthorizerDecision{Decision: scenarios.NoOpinion, Reason: r.Status.Reason, Err: r.Status.EvaluationError}
	switch {
	case r.Status.Allowed:
		a.Decision, a.Source, a.Reason = scenarios.Allow, r.Status.Reason, ""
	case r.Status.Denied:
		a.Decision = scenarios.Deny
	}
	l.known[string(raw)] = a
	return a
}
