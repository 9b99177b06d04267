// Package existing is a cluster that somebody else made. It is read what the cluster consists of, and nothing of it is
// changed. Everything that is created in it has a label, and is removed again.
package existing

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/scenarios"
)

// Cluster is an existing one, reached by a kubeconfig.
type Cluster struct {
	config         *rest.Config
	client         *kubernetes.Clientset
	context        string
	run            string
	mayHaveObjects atomic.Bool // set by the first request that may have created something
}

// Open reads a kubeconfig file, and uses its current context unless another one is named. run labels what is created in
// the cluster. Nothing is sent yet.
func Open(kubeconfig, context, run string) (*Cluster, error) {
	data, err := filing.Input(kubeconfig) // read once, as it may be a pipe
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read as a kubeconfig: %w", kubeconfig, err)
	}
	return Parse(kubeconfig, data, context, run)
}

// Parse does the same as Open for a kubeconfig that was read already. data is the content of the file, and paths in it
// are relative to the file.
func Parse(kubeconfig string, data []byte, context, run string) (*Cluster, error) {
	raw, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read as a kubeconfig", kubeconfig)
	}
	for _, c := range raw.Clusters {
		c.LocationOfOrigin = kubeconfig
	}
	for _, u := range raw.AuthInfos {
		u.LocationOfOrigin = kubeconfig
	}
	if err := clientcmd.ResolveLocalPaths(raw); err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w", kubeconfig, err)
	}
	loader := clientcmd.NewNonInteractiveClientConfig(*raw, context, &clientcmd.ConfigOverrides{CurrentContext: context}, nil)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w", kubeconfig, err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(rest.CopyConfig(config))
	return &Cluster{config: config, client: client, context: cmp.Or(context, raw.CurrentContext), run: run}, err
}

// Admin is the user of the kubeconfig. What is created with it is labelled.
func (c *Cluster) Admin() *rest.Config {
	config := rest.CopyConfig(c.config)
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &labeller{c, next} })
	return config
}

// FrontProxy is nil, because nobody may name users there.
func (c *Cluster) FrontProxy() *rest.Config { return nil }

// Anonymous carries no credentials.
func (c *Cluster) Anonymous() *rest.Config { return rest.AnonymousClientConfig(c.config) }

// Err is always nil, because this process does not watch the cluster.
func (c *Cluster) Err() error { return nil }

// Facts are what a cluster is, and what it may be used for.
type Facts struct {
	clusters.Facts
	Risks []string // reasons to think that it is not meant for tests
}

const maxNodes = 5

var (
	production = regexp.MustCompile(`(?i)(^|[^a-z])(prod|prd|production|live)([^a-z]|$)`)
	ownSpaces  = regexp.MustCompile(`^(kube-.*|default|local-path-storage|authzconf-.*)$`)
)

// Inspect reads what the cluster is, and what it may be used for. It changes nothing.
func (c *Cluster) Inspect(ctx context.Context) (f Facts, err error) {
	if f.Facts, err = c.Facts(ctx); err == nil {
		f.Risks, err = c.risks(ctx)
	}
	return f, refused(err)
}

// Facts implements clusters.Describer. The facts are what everybody may know about the cluster.
func (c *Cluster) Facts(ctx context.Context) (f clusters.Facts, err error) {
	v, err := c.client.ServerVersionWithContext(ctx)
	if err != nil {
		return f, refused(fmt.Errorf("the API server: %w", err))
	}
	f.GitVersion, f.Emulated = v.GitVersion, strings.Trim(v.EmulationMajor+"."+v.EmulationMinor, ".")
	// Groups without a user are refused before anybody is asked for permission, with a text that depends on the gate.
	err = c.client.RESTClient().Get().AbsPath("/version").SetHeader("Impersonate-Group", "authzconf").Do(ctx).Error()
	answer := fmt.Sprint(err)
	if f.Gate = reports.DetectGate(answer); f.Gate == scenarios.GateUnknown {
		return f, fmt.Errorf(
			"the API server does not say whether ConstrainedImpersonation is on: groups without a user are answered with %s",
			answer,
		)
	}
	return f, nil
}

// risks looks for signs of production: names, many nodes, or workloads.
func (c *Cluster) risks(ctx context.Context) (risks []string, err error) {
	for what, name := range map[string]string{"its context": c.context, "its address": c.config.Host} {
		if production.MatchString(name) {
			risks = append(risks, fmt.Sprintf("%s is %q", what, name))
		}
	}
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: maxNodes + 1, LabelSelector: "!" + Label})
	if err != nil {
		return nil, fmt.Errorf("reading its nodes: %w", err)
	}
	if len(nodes.Items) > maxNodes {
		risks = append(risks, fmt.Sprintf("it has more than %d nodes", maxNodes))
	}
	spaces, err := c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading its namespaces: %w", err)
	}
	for _, s := range spaces.Items {
		if s.Labels[Label] != "" {
			continue // an earlier run's
		}
		more, err := c.risksOf(ctx, s.Name)
		if err != nil {
			return nil, err
		}
		risks = append(risks, more...)
	}
	slices.Sort(risks)
	return risks, nil
}

// risksOf looks at one namespace.
func (c *Cluster) risksOf(ctx context.Context, space string) (risks []string, err error) {
	if production.MatchString(space) {
		risks = append(risks, fmt.Sprintf("it has a namespace %q", space))
	}
	if ownSpaces.MatchString(space) {
		return risks, nil
	}
	pods, err := c.client.CoreV1().Pods(space).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("reading the pods of its namespaces: %w", err)
	}
	if len(pods.Items) > 0 {
		risks = append(risks, fmt.Sprintf("somebody's pods run in namespace %q", space))
	}
	return risks, nil
}

const (
	// Label is a label of everything that is created. Its value names the run. managedBy is a label, too, with the
	// value authzconf.
	Label     = "authzconf.dev/run"
	managedBy = "app.kubernetes.io/managed-by"
	// cleaning is how long removing may take (155,000 pods take long). tries is how often it is tried while a server is
	// away.
	cleaning = time.Hour
	tries    = 20
)

type labeller struct {
	cluster *Cluster
	next    http.RoundTripper
}

func (l *labeller) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost || r.Body == nil || !collection(r.URL.Path) {
		return l.next.RoundTrip(r)
	}
	raw, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if err != nil {
		return nil, err
	}
	l.cluster.mayHaveObjects.Store(true)
	labelled := label(raw, l.cluster.run)
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(labelled)), int64(len(labelled))
	return l.next.RoundTrip(r)
}

// collection reports whether objects that persist are created at a path. Reviews do not, nor do the tokens of an
// account.
func collection(path string) bool {
	return !strings.HasPrefix(path, "/apis/authorization.k8s.io/") && !strings.HasPrefix(path, "/apis/authentication.k8s.io/") &&
		!strings.HasSuffix(path, "/token")
}

func label(raw []byte, run string) []byte {
	var u unstructured.Unstructured
	if json.Unmarshal(raw, &u.Object) != nil || u.Object["metadata"] == nil {
		return raw
	}
	u.SetLabels(labels.Merge(u.GetLabels(), labels.Set{Label: run, managedBy: "authzconf"}))
	if out, err := json.Marshal(u.Object); err == nil {
		raw = out
	}
	return raw
}

// Stop removes everything that was made. It is idempotent.
func (c *Cluster) Stop() error {
	if !c.mayHaveObjects.Swap(false) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleaning)
	defer cancel()
	for try := 1; ; try++ {
		_, err := c.Clean(ctx, c.run, false)
		if err == nil {
			return nil
		}
		time.Sleep(time.Second)
		if try == tries {
			return fmt.Errorf(
				"what has the label %s=%s could not be removed from the cluster (authzconf clean --kubeconfig FILE does it when it can): %w",
				Label,
				c.run,
				err,
			)
		}
	}
}

// kind is a kind of objects, in version v1 of its group.
type kind struct{ group, name string }

func (k kind) path(space string) string {
	api := "/api/v1/"
	if k.group != "" {
		api = "/apis/" + k.group + "/v1/"
	}
	if space != "" {
		api += "namespaces/" + space + "/"
	}
	return api + k.name
}

const (
	flows = "flowcontrol.apiserver.k8s.io"
	rbac  = "rbac.authorization.k8s.io"
)

// outside are the kinds of objects that runs create. inside are those that they create in namespaces of their own and
// that nothing else may remove soon: pods on nodes that do not exist, and objects on a control plane without
// controllers.
var (
	outside = []kind{
		{flows, "flowschemas"},
		{flows, "prioritylevelconfigurations"},
		{rbac, "clusterrolebindings"},
		{rbac, "clusterroles"},
		{"", "nodes"},
	}
	inside = []kind{{"", "pods"}, {"", "serviceaccounts"}, {rbac, "rolebindings"}, {rbac, "roles"}}
	spaces = kind{"", "namespaces"}
)

// Clean removes what runs have created, and returns what that is. An empty run means every run. With dryRun nothing is
// removed. Objects in namespaces are removed with these.
func (c *Cluster) Clean(ctx context.Context, run string, dryRun bool) (names []string, err error) {
	selector := Label
	if run != "" {
		selector += "=" + run
	}
	var errs []error
	// Namespaces are last, and the first of them is a storm's claim.
	for _, k := range append(slices.Clone(outside), spaces) {
		path := k.path("")
		raw, err := c.client.RESTClient().Get().AbsPath(path).Param("labelSelector", selector).DoRaw(ctx)
		if err != nil {
			return names, err
		}
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(raw, &list); err != nil {
			return names, err
		}
		list.Items = slices.DeleteFunc(list.Items, func(o metav1.PartialObjectMetadata) bool { return o.DeletionTimestamp != nil })
		for _, o := range list.Items {
			names = append(names, path+"/"+o.Name)
		}
		switch {
		case dryRun || len(list.Items) == 0:
		case k != spaces:
			errs = append(errs, c.empty(ctx, path, selector))
		default:
			var group errgroup.Group // an API server removes one object at a time for each request
			for _, o := range list.Items[1:] {
				group.Go(func() error { return c.removeSpace(ctx, o.Name) })
			}
			errs = append(errs, group.Wait(), c.removeSpace(ctx, list.Items[0].Name))
		}
	}
	return names, errors.Join(errs...)
}

func (c *Cluster) removeSpace(ctx context.Context, name string) error {
	for _, k := range inside {
		if err := c.empty(ctx, k.path(name), ""); err != nil {
			return err
		}
	}
	// If controllers are quick, they are already finalizing it, which gives a conflict.
	err := c.client.RESTClient().Delete().AbsPath(spaces.path("") + "/" + name).Do(ctx).Error()
	return utilerrors.FilterOut(err, apierrors.IsNotFound, apierrors.IsConflict)
}

// atOnce is how many objects are removed by one request, which has to be answered before it times out.
const atOnce = 500

// empty removes the objects of a kind at once, without waiting for a kubelet.
func (c *Cluster) empty(ctx context.Context, path, selector string) error {
	for {
		raw, err := c.client.RESTClient().Delete().AbsPath(path).Param("labelSelector", selector).
			Param("limit", strconv.Itoa(atOnce)).Param("gracePeriodSeconds", "0").DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("removing %s: %w", path, err)
		}
		var removed metav1.PartialObjectMetadataList
		if err := json.Unmarshal(raw, &removed); err != nil || len(removed.Items) < atOnce {
			return err
		}
	}
}

const (
	claimAnnotation = "authzconf.dev/claimed-by" // the annotation that says who has claimed a cluster
	// leaving is how long the namespaces of an earlier run may take to disappear.
	leaving = time.Minute
)

// Claim creates a namespace that shows that a storm has the cluster for itself. If another has claimed it, the error
// says which. stormLabel labels all other namespaces of storms; those of an earlier storm must be gone first.
func (c *Cluster) Claim(ctx context.Context, name, stormLabel string) error {
	host, _ := os.Hostname()
	claimant := fmt.Sprintf("process %d on %s since %s", os.Getpid(), host, time.Now().UTC().Format(time.RFC3339))
	for end := time.Now().Add(leaving); ; {
		going, err := c.findEarlierRun(ctx, name, stormLabel)
		if err != nil {
			return err
		}
		if going == "" {
			c.mayHaveObjects.Store(true)
			_, err = c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name:        name,
				Labels:      map[string]string{Label: c.run, managedBy: "authzconf"},
				Annotations: map[string]string{claimAnnotation: claimant},
			}}, metav1.CreateOptions{})
			if !apierrors.IsAlreadyExists(err) {
				return err
			}
			continue // somebody was quicker
		}
		if time.Now().After(end) {
			return &usage.Error{
				Problem: fmt.Sprintf(
					"the namespace %s of an earlier storm is still being removed after %s; nothing was created",
					going,
					leaving,
				),
			}
		}
		if !clusters.Pause(ctx, 500*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// findEarlierRun returns the name of another storm's namespace that is being removed, if there is one. One that stays is
// an error.
func (c *Cluster) findEarlierRun(ctx context.Context, name, stormLabel string) (going string, err error) {
	list, err := c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for _, s := range list.Items {
		_, isOfStorm := s.Labels[stormLabel]
		switch {
		case s.Name != name && !isOfStorm:
		case s.DeletionTimestamp != nil:
			going = s.Name
		case s.Labels[Label] == "":
			return "", &usage.Error{
				Problem: fmt.Sprintf(
					"there is a namespace %s in the cluster that no run has made: a storm needs it; nothing was created",
					s.Name,
				),
			}
		case s.Name == name && s.Annotations[claimAnnotation] != "":
			return "", &usage.Error{
				Problem: fmt.Sprintf(
					"another storm is in the cluster: run %s, %s; wait for its end, or if that process is gone, remove what it left (authzconf clean --kubeconfig FILE); nothing was created",
					s.Labels[Label],
					s.Annotations[claimAnnotation],
				),
			}
		default:
			return "", &usage.Error{
				Problem: fmt.Sprintf(
					"run %s has left the namespace %s in the cluster: remove it first (authzconf clean --kubeconfig FILE); nothing was created",
					s.Labels[Label],
					s.Name,
				),
			}
		}
	}
	return going, nil
}
