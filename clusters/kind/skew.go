package kind

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/authzconf/authzconf/internal/usage"
)

// How many minors a component may be older than an API server, by https://kubernetes.io/releases/version-skew-policy/.
const (
	kubeletSkew   = 3
	apiServerSkew = 1
)

const skewPolicy = "https://kubernetes.io/releases/version-skew-policy/"

// CheckSkew checks the versions of the API servers and of the kubelets of a cluster, such as 1.37.1, against the version
// skew policy of Kubernetes: API servers are at most one minor apart, and a kubelet is not newer than any of them and at
// most three minors older than the newest. What breaks the policy is a *usage.Error.
func CheckSkew(apiServers, kubelets []string) error {
	newest, oldest := apiServers[0], apiServers[0]
	for _, v := range apiServers[1:] {
		if minorsBetween(newest, v) > 0 {
			newest = v
		}
		if minorsBetween(v, oldest) > 0 {
			oldest = v
		}
	}
	if minorsBetween(oldest, newest) > apiServerSkew {
		return skewError("API servers of Kubernetes %s and %s: at most %d minor may be between them", oldest, newest, apiServerSkew)
	}
	for _, kubelet := range kubelets {
		switch {
		case minorsBetween(oldest, kubelet) > 0:
			return skewError("a node of Kubernetes %s with an API server of %s: a kubelet must not be newer", kubelet, oldest)
		case minorsBetween(kubelet, newest) > kubeletSkew:
			return skewError("a node of Kubernetes %s with an API server of %s: a kubelet may be at most %d minors older", kubelet, newest, kubeletSkew)
		}
	}
	return nil
}

func skewError(format string, args ...any) error {
	return &usage.Error{Problem: fmt.Sprintf(format, args...), Hint: "see " + skewPolicy}
}

// checkImages checks that the node images of all nodes are there, hold the versions that were asked for, and keep to the
// version skew policy.
func (o *Options) checkImages(ctx context.Context) error {
	o.Image = findImage(ctx, o.Image)
	for i := range o.Workers {
		o.Workers[i].Image = findImage(ctx, o.Workers[i].Image)
	}
	server, err := ImageVersion(ctx, o.Image)
	if err != nil {
		return err
	}
	versions := map[string]string{o.Image: server}
	kubelets := []string{server}
	for _, w := range o.Workers {
		version, known := versions[w.Image]
		if !known {
			if version, err = ImageVersion(ctx, w.Image); err != nil {
				return err
			}
			versions[w.Image] = version
		}
		if w.Version != "" && w.Version != version {
			return &usage.Error{
				Problem: fmt.Sprintf("the node image %s has Kubernetes %s, and a node of %s is asked for", w.Image, version, w.Version),
				Hint:    "name an image of that version, as --kind-node-image MINOR=IMAGE",
			}
		}
		kubelets = append(kubelets, version)
	}
	return CheckSkew([]string{server}, kubelets)
}

// minorsBetween returns how many minors b is newer than a.
func minorsBetween(a, b string) int {
	return int(version.MustParseGeneric(b).Minor()) - int(version.MustParseGeneric(a).Minor())
}
