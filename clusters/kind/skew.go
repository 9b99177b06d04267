package kind

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/authzconf/authzconf/internal/usage"
)

// These are how many minors a component may be older than an API server, by
// https://kubernetes.io/releases/version-skew-policy/.
const (
	kubeletSkew   = 3
	apiServerSkew = 1
)

const skewPolicy = "https://kubernetes.io/releases/version-skew-policy/"

// CheckSkew checks the versions of the API servers and kubelets of a cluster, such as 1.37.1, against the version skew
// policy of Kubernetes: API servers are at most one minor apart, and a kubelet is not newer than any of them and at
// most three minors older than the newest. A violation is a *usage.Error.
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
			return skewError(
				"a node of Kubernetes %s with an API server of %s: a kubelet may be at most %d minors older",
				kubelet,
				newest,
				kubeletSkew,
			)
		}
	}
	return nil
}

func skewError(format string, args ...any) error {
	return &usage.Error{Problem: fmt.Sprintf(format, args...), Hint: "see " + skewPolicy}
}

// checkImages checks that the engine has the node images of all nodes, that they have the requested versions, and that
// these comply with the version skew policy.
func (o *Options) checkImages(ctx context.Context) error {
	o.Image = findImage(ctx, o.Image)
	server, err := ImageVersion(ctx, o.Image)
	if err != nil {
		return err
	}
	if len(o.ControlPlanes) > 0 {
		if err := checkBalancer(ctx); err != nil {
			return err
		}
	}
	others, err := checkNodeImages(ctx, o.ControlPlanes)
	if err != nil {
		return err
	}
	kubelets, err := checkNodeImages(ctx, o.Workers)
	if err != nil {
		return err
	}
	return errors.Join(CheckSkew(append(others, server), kubelets), o.checkMemory())
}

// checkNodeImages finds the images of some nodes, checks that they have the requested versions, and returns these.
func checkNodeImages(ctx context.Context, nodes []Worker) (versions []string, err error) {
	for i := range nodes {
		nodes[i].Image = findImage(ctx, nodes[i].Image)
		version, err := ImageVersion(ctx, nodes[i].Image)
		if err != nil {
			return nil, err
		}
		if nodeVersion := nodes[i].Version; nodeVersion != "" && nodeVersion != version {
			return nil, &usage.Error{
				Problem: fmt.Sprintf(
					"the node image %s has Kubernetes %s, and a node of %s is asked for",
					nodes[i].Image,
					version,
					nodeVersion,
				),
				Hint: "name an image of that version, as --kind-node-image MINOR=IMAGE",
			}
		}
		versions = append(versions, version)
	}
	return versions, nil
}

// minorsBetween returns how many minors b is newer than a.
func minorsBetween(a, b string) int {
	return int(version.MustParseGeneric(b).Minor()) - int(version.MustParseGeneric(a).Minor())
}
