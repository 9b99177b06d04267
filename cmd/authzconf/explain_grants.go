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
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

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
