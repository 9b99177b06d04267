package deputy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// smallDashboard is a dashboard with an HTTP interface of its own. It acts on behalf of the person of a session. Before
// it writes, it asks whether that person may, and it writes a row for each action. fault is what is wrong with it, or
// "" if it is right.
type smallDashboard struct {
	config *rest.Config // with its own credentials
	// others are further clusters by their names. Any other name stands for the cluster of config.
	others map[string]*rest.Config
	trail  io.Writer
	fault  string

	mu     sync.Mutex
	before string // the sender of the previous request
}

var dashboardGroups = map[string][]string{"alice@corp": {"periscope-tier:triage"}, "bob@corp": {"periscope-tier:read"}}

func (d *smallDashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	person := r.Header.Get(sessionHeader)
	if person == "" && d.fault != "lets nobody in" {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	a := &dashboardAction{smallDashboard: d, person: person, request: r, as: d.nameOf(person)}
	err := a.do()
	code := http.StatusOK
	switch status, isStatus := errors.AsType[*apierrors.StatusError](err); {
	case isStatus:
		code = int(status.Status().Code)
	case err != nil:
		code = http.StatusForbidden
	}
	w.WriteHeader(code)
}

// nameOf returns the name under which a person's request is made.
func (d *smallDashboard) nameOf(person string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.before
	d.before = person
	switch {
	case d.fault == "acts as itself":
		return ""
	case d.fault == "acts as the person before" && before != "":
		return before
	}
	return person
}

// dashboardAction is one request of a person.
type dashboardAction struct {
	*smallDashboard
	person, as string
	request    *http.Request
}

func (a *dashboardAction) client(as string) kubernetes.Interface {
	config := rest.CopyConfig(a.configOf(a.cluster()))
	config.Impersonate = rest.ImpersonationConfig{UserName: as, Groups: dashboardGroups[as]}
	if a.fault == "forgets the groups" {
		config.Impersonate.Groups = nil
	}
	return kubernetes.NewForConfigOrDie(config)
}

// cluster returns the name of the cluster that the request is for.
func (a *dashboardAction) cluster() string {
	name, _, _ := strings.Cut(strings.TrimPrefix(a.request.URL.Path, "/api/clusters/"), "/")
	return name
}

func (d *smallDashboard) configOf(cluster string) *rest.Config {
	if d.fault == "acts at the first cluster" {
		return d.config
	}
	return cmp.Or(d.others[cluster], d.config)
}

// do carries out what the path and method ask for: /api/clusters/{cluster}/{resource}/{namespace}/{name}/{action}.
func (a *dashboardAction) do() error {
	parts := append(strings.Split(strings.TrimPrefix(a.request.URL.Path, "/api/clusters/"), "/"), "", "", "")
	resource, namespace, name := parts[1], parts[2], parts[3]
	if a.fault == "acts at every cluster" {
		a.actElsewhere(namespace, name)
	}
	ctx, client := a.request.Context(), a.client(a.as)
	if a.fault == "reads as itself" {
		_, _ = a.client("").CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
	}
	switch a.request.Method + " " + resource {
	case "POST can-i":
		return a.answerChecks(ctx)
	case "GET pods":
		_, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err
	case "DELETE pods":
		return a.write(row{"delete", "pods", namespace, name}, []check{{"delete", "", "pods", "", namespace, name}}, func() error {
			return client.CoreV1().Pods(a.misplace(namespace)).Delete(ctx, a.mistake(name), metav1.DeleteOptions{})
		})
	case "POST deployments":
		return a.write(
			row{"restart", "deployments", namespace, name},
			[]check{{"patch", "apps", "deployments", "", namespace, name}},
			func() error {
				_, err := client.AppsV1().Deployments(namespace).Patch(ctx, name, types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
				return err
			},
		)
	case "GET configmaps":
		return a.openEditor(ctx, client, namespace, name)
	case "PATCH configmaps":
		body, err := io.ReadAll(a.request.Body)
		if err != nil {
			return err
		}
		return a.write(
			row{"patch", "configmaps", namespace, name},
			[]check{{"patch", "", "configmaps", "", namespace, name}},
			func() error {
				_, err := client.CoreV1().ConfigMaps(namespace).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
				return err
			},
		)
	case "POST nodes":
		return a.drain(ctx, client, parts[2], a.request.URL.Query().Get("pods"))
	}
	return fmt.Errorf("there is nothing at %s", a.request.URL.Path)
}

// openEditor shows the page on which a ConfigMap is edited. It asks whether the person may edit it, and also shows the
// page to a person who may not.
func (a *dashboardAction) openEditor(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
	_, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	switch a.fault {
	case "shows the editor without asking":
		return err
	case "asks about the editor of everybody":
		a.as = ""
	case "tries the edit to find out":
		_, _ = client.CoreV1().
			ConfigMaps(namespace).
			Patch(ctx, name, types.MergePatchType, []byte(`{}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	}
	if problem := a.ask([]check{{"patch", "", "configmaps", "", namespace, name}}); problem != nil && !errors.Is(problem, errNotAllowed) {
		return problem
	}
	return err
}

// rulesFrom is the number of checks from which on the small dashboard asks for the rules of a namespace instead of for
// each check. Periscope's can-i does that too.
const rulesFrom = 3

// answerChecks answers all questions of a page in one request.
func (a *dashboardAction) answerChecks(ctx context.Context) error {
	var body struct {
		Checks []struct{ Verb, Group, Resource, Namespace string }
	}
	if err := json.NewDecoder(a.request.Body).Decode(&body); err != nil {
		return err
	}
	switch {
	case a.fault == "answers checks by itself":
		return nil
	case len(body.Checks) >= rulesFrom:
		namespace := body.Checks[0].Namespace
		if a.fault == "asks for the rules elsewhere" {
			namespace = "default"
		}
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
		_, err := a.client(a.as).AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, review, metav1.CreateOptions{})
		return err
	}
	for _, c := range body.Checks {
		if err := a.ask([]check{{c.Verb, c.Group, c.Resource, "", c.Namespace, ""}}); err != nil && !errors.Is(err, errNotAllowed) {
			return err
		}
	}
	return nil
}

func (a *dashboardAction) drain(ctx context.Context, client kubernetes.Interface, node, pod string) error {
	namespace, name, _ := strings.Cut(pod, "/")
	checks := []check{{"patch", "", "nodes", "", "", node}, {"create", "", "pods", "eviction", namespace, name}}
	return a.write(row{"drain", "nodes", "", node}, checks, func() error {
		_, err := client.CoreV1().
			Nodes().
			Patch(ctx, node, types.MergePatchType, []byte(`{"spec": {"unschedulable": true}}`), metav1.PatchOptions{})
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		return errors.Join(client.CoreV1().Pods(namespace).EvictV1(ctx, eviction), err)
	})
}

// actElsewhere does at all other clusters what the request asks for.
func (a *dashboardAction) actElsewhere(namespace, name string) {
	for cluster, config := range a.others {
		if cluster == a.cluster() {
			continue
		}
		config := rest.CopyConfig(config)
		config.Impersonate = rest.ImpersonationConfig{UserName: a.as, Groups: dashboardGroups[a.as]}
		pods := kubernetes.NewForConfigOrDie(config).CoreV1().Pods(namespace)
		if a.request.Method == http.MethodDelete {
			_ = pods.Delete(a.request.Context(), name, metav1.DeleteOptions{})
		} else {
			_, _ = pods.List(a.request.Context(), metav1.ListOptions{})
		}
	}
}

func (a *dashboardAction) mistake(name string) string {
	if a.fault == "takes another name" {
		return name + "-0"
	}
	return name
}

func (a *dashboardAction) misplace(namespace string) string {
	if a.fault == "takes another namespace" {
		return "default"
	}
	return namespace
}

type row struct{ verb, resource, namespace, name string }

type check struct{ verb, group, resource, sub, namespace, name string }

// write asks whether the person may act, acts, and writes a row.
func (a *dashboardAction) write(what row, checks []check, act func() error) error {
	if a.fault == "asks afterwards" {
		defer func() { _ = a.ask(checks) }()
	} else if a.person != "" && a.fault != "does not ask" {
		if err := a.ask(checks); err != nil {
			return errors.Join(err, a.log(what))
		}
	}
	err := act()
	if a.fault == "acts twice" {
		_ = a.client(a.as).CoreV1().Secrets(what.namespace).Delete(a.request.Context(), what.name, metav1.DeleteOptions{})
	}
	return errors.Join(err, a.log(what))
}

var errNotAllowed = errors.New("RBAC does not grant it")

// ask asks whether the person may do everything in a list.
func (a *dashboardAction) ask(checks []check) error {
	as := a.as
	if a.fault == "asks as itself" {
		as = ""
	}
	for _, c := range checks {
		if a.fault == "asks about another verb" {
			c.verb = "get"
		}
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: c.verb, Group: c.group, Resource: c.resource, Subresource: c.sub, Namespace: c.namespace, Name: c.name,
			}},
		}
		client := a.client(as)
		if a.fault == "asks at the first cluster" {
			config := rest.CopyConfig(a.config)
			config.Impersonate = rest.ImpersonationConfig{UserName: as, Groups: dashboardGroups[as]}
			client = kubernetes.NewForConfigOrDie(config)
		}
		got, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(a.request.Context(), review, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if !got.Status.Allowed {
			return errNotAllowed
		}
	}
	return nil
}

// log writes a row of the trail.
func (a *dashboardAction) log(what row) error {
	actor, cluster, id, times := a.person, a.cluster(), a.request.Header.Get("X-Request-Id"), 1
	switch a.fault {
	case "writes no row":
		return nil
	case "writes another's row":
		actor = "bob@corp"
	case "writes another cluster":
		cluster = "elsewhere"
	case "writes another verb":
		what.verb = "get"
	case "writes another name":
		what.name += "-0"
	case "writes no correlation":
		id = ""
	case "writes rows twice":
		times = 2
	}
	line, err := json.Marshal(map[string]any{
		"msg": "audit", "request_id": id, "cluster": cluster, "verb": what.verb, "actor": map[string]any{"sub": actor},
		"resource": map[string]any{"resource": what.resource, "namespace": what.namespace, "name": what.name},
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err = io.WriteString(a.trail, strings.Repeat(string(line)+"\n", times))
	return err
}
