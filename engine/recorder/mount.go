package recorder

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Point is where in an authorizer chain reviews are recorded. It is the path of the webhook's URL.
type Point string

const (
	// Front stands before every other authorizer and sees every check.
	Front Point = "front"
	// Back stands after every other authorizer and sees only the checks that none of them decided.
	Back Point = "back"
)

// mount is a point that is being served.
type mount struct {
	point  Point
	script Script // nil has no opinion
}

// mountsFor makes the mounts of a recorder, by URL path.
func mountsFor(scripts map[Point]Script) (map[string]*mount, error) {
	mounts := map[string]*mount{}
	for _, p := range append([]Point{Front, Back}, slices.Sorted(maps.Keys(scripts))...) {
		if wrong := validation.IsDNS1123Label(string(p)); len(wrong) > 0 {
			return nil, fmt.Errorf("recorder: point %q: %s", p, strings.Join(wrong, "; "))
		}
		mounts["/"+string(p)] = &mount{point: p, script: scripts[p]}
	}
	return mounts, nil
}

// URL is the address of a point. One that the recorder was not started with answers 404.
func (r *Recorder) URL(p Point) string { return "https://" + r.addr + "/" + string(p) }

// Kubeconfig is the webhook configuration with which an API server asks a point. It holds a client key, without
// which the recorder accepts no connection: write it to a file that only the API server can read.
func (r *Recorder) Kubeconfig(p Point) []byte {
	name := "recorder-" + string(p)
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: r.URL(p), CertificateAuthorityData: r.pki.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: r.pki.ClientCert,
		ClientKeyData:         r.pki.ClientKey,
	}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	out, err := clientcmd.Write(*config)
	if err != nil {
		// Only strings and bytes are encoded, so this is a mistake in this
		// package and no state that a caller could handle.
		panic(fmt.Sprintf("recorder: encoding a kubeconfig: %v", err))
	}
	return out
}
