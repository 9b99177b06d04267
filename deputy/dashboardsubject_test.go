package deputy

import (
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

// smallDashboard is a dashboard with an HTTP interface of its own. It acts as the person of a session, asks before it writes
// whether that person may, and writes a row for each action. fault is what is wrong with it; empty for one that is right.
type smallDashboard struct {
	config *rest.Config // with its own credentials
	trail  io.Writer
	fault  string

	mu     sync.Mutex
	before string // who sent the request before
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

// nameOf returns as whom a person's request is made.
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
	config := rest.CopyConfig(a.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: as, Groups: dashboardGroups[as]}
	if a.fault == "forgets the groups" {
		config.Impersonate.Groups = nil
	}
	return kubernetes.NewForConfigOrDie(config)
}

// do does what the path and method ask for: /api/clusters/{cluster}/{resource}/{namespace}/{name}/{action}.
func (a *dashboardAction) do() error {
	parts := append(strings.Split(strings.TrimPrefix(a.request.URL.Path, "/api/clusters/"), "/"), "", "", "")
	resource, namespace, name := parts[1], parts[2], parts[3]
	ctx, client := a.request.Context(), a.client(a.as)
	if a.fault == "reads as itself" {
		_, _ = a.client("").CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
	}
	switch a.request.Method + " " + resource {
	case "GET pods":
		_, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err
	case "DELETE pods":
		return a.write(row{"delete", "pods", namespace, name}, []check{{"delete", "", "pods", "", namespace, name}}, func() error {
			return client.CoreV1().Pods(a.misplace(namespace)).Delete(ctx, a.mistake(name), metav1.DeleteOptions{})
		})
	case "POST deployments":
		return a.write(row{"restart", "deployments", namespace, name}, []check{{"patch", "apps", "deployments", "", namespace, name}}, func() error {
			_, err := client.AppsV1().Deployments(namespace).Patch(ctx, name, types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
			return err
		})
	case "PATCH configmaps":
		body, err := io.ReadAll(a.request.Body)
		if err != nil {
			return err
		}
		return a.write(row{"patch", "configmaps", namespace, name}, []check{{"patch", "", "configmaps", "", namespace, name}}, func() error {
			_, err := client.CoreV1().ConfigMaps(namespace).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
			return err
		})
	case "POST nodes":
		return a.drain(ctx, client, parts[2], a.request.URL.Query().Get("pods"))
	}
	return fmt.Errorf("there is nothing at %s", a.request.URL.Path)
}

func (a *dashboardAction) drain(ctx context.Context, client kubernetes.Interface, node, pod string) error {
	namespace, name, _ := strings.Cut(pod, "/")
	checks := []check{{"patch", "", "nodes", "", "", node}, {"create", "", "pods", "eviction", namespace, name}}
	return a.write(row{"drain", "nodes", "", node}, checks, func() error {
		_, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"spec": {"unschedulable": true}}`), metav1.PatchOptions{})
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		return errors.Join(client.CoreV1().Pods(namespace).EvictV1(ctx, eviction), err)
	})
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

// write asks whether the person may, acts, and writes a row.
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

// ask asks whether the person may do all of it.
func (a *dashboardAction) ask(checks []check) error {
	as := a.as
	if a.fault == "asks as itself" {
		as = ""
	}
	for _, c := range checks {
		if a.fault == "asks about another verb" {
			c.verb = "get"
		}
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: c.verb, Group: c.group, Resource: c.resource, Subresource: c.sub, Namespace: c.namespace, Name: c.name,
		}}}
		got, err := a.client(as).AuthorizationV1().SelfSubjectAccessReviews().Create(a.request.Context(), review, metav1.CreateOptions{})
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
	actor, cluster, id, times := a.person, "local", a.request.Header.Get("X-Request-Id"), 1
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
