package existing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Label is on everything that is made; its value names the run.
	Label = "authzconf.dev/run"
	// cleaning is how long removing may take.
	cleaning = 2 * time.Minute
)

// made are the objects of a run, in the order they were made in.
type made struct {
	run string

	mu    sync.Mutex
	paths []string
}

// labeller labels what is created and remembers where it is.
type labeller struct {
	made *made
	next http.RoundTripper
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
	labelled, name := label(raw, l.made.run)
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(labelled)), int64(len(labelled))
	resp, err := l.next.RoundTrip(r)
	// An answer that does not come may belong to an object that is there.
	if name != "" && (err != nil || resp.StatusCode == http.StatusCreated) {
		l.made.mu.Lock()
		defer l.made.mu.Unlock()
		l.made.paths = append(l.made.paths, r.URL.Path+"/"+name)
	}
	return resp, err
}

// collection says whether objects that stay are made at a path: not reviews, nor the tokens of an account.
func collection(path string) bool {
	return !strings.HasPrefix(path, "/apis/authorization.k8s.io/") && !strings.HasPrefix(path, "/apis/authentication.k8s.io/") && !strings.HasSuffix(path, "/token")
}

// label adds the label to an object, and says what it is called. What cannot be read is sent as it is.
func label(raw []byte, run string) (labelled []byte, name string) {
	var object map[string]any
	if json.Unmarshal(raw, &object) != nil {
		return raw, ""
	}
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		return raw, ""
	}
	labels, ok := meta["labels"].(map[string]any)
	if !ok {
		labels = map[string]any{}
	}
	labels[Label] = run
	meta["labels"] = labels
	name, _ = meta["name"].(string)
	if out, err := json.Marshal(object); err == nil {
		raw = out
	}
	return raw, name
}

// Stop removes everything that was made, last first. It is idempotent.
func (c *Cluster) Stop() error {
	c.made.mu.Lock()
	paths := c.made.paths
	c.made.paths = nil
	c.made.mu.Unlock()
	if len(paths) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleaning)
	defer cancel()
	var errs []error
	for _, path := range slices.Backward(paths) {
		if err := c.remove(ctx, path); !apierrors.IsConflict(err) {
			errs = append(errs, err)
		}
	}
	_, err := c.Clean(ctx, c.made.run, false) // and what is not remembered
	return errors.Join(append(errs, err)...)
}

func (c *Cluster) remove(ctx context.Context, path string) error {
	if err := c.client.RESTClient().Delete().AbsPath(path).Do(ctx).Error(); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}

// Clean removes what runs have made and says what that is; an empty run is every
// run. With dryRun nothing is removed. Objects within namespaces go with these.
func (c *Cluster) Clean(ctx context.Context, run string, dryRun bool) (found []string, err error) {
	selector := Label
	if run != "" {
		selector += "=" + run
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	var errs []error
	for _, path := range []string{rbac + "clusterrolebindings", rbac + "clusterroles", "/api/v1/namespaces"} {
		raw, err := c.client.RESTClient().Get().AbsPath(path).Param("labelSelector", selector).DoRaw(ctx)
		if err != nil {
			return found, err
		}
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(raw, &list); err != nil {
			return found, err
		}
		for _, o := range list.Items {
			if o.DeletionTimestamp != nil {
				continue
			}
			found = append(found, path+"/"+o.Name)
			if !dryRun {
				errs = append(errs, c.remove(ctx, path+"/"+o.Name))
			}
		}
	}
	return found, errors.Join(errs...)
}
