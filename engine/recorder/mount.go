package recorder

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

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

// Counts are totals since the start. They only grow.
type Counts struct {
	// Points has an entry for every point of the recorder.
	Points map[Point]PointCounts
	// Strays are requests to another path than a point's, or with another method
	// than POST. They are no reviews; any means that something is misconfigured.
	Strays uint64
}

// PointCounts are the arrivals at one point. Each arrival is exactly one of the
// three, and their sum over all points is Mark once nothing is under way.
type PointCounts struct {
	// Reviews were recorded.
	Reviews uint64
	// Probes were asked for by the harness itself.
	Probes uint64
	// Malformed were refused.
	Malformed uint64
}

// mount is a point that is being served.
type mount struct {
	point                      Point
	script                     Script // nil has no opinion
	reviews, probes, malformed atomic.Uint64
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

// Counts returns the totals. It takes no lock, so a load generator can ask for them as often as it likes.
func (r *Recorder) Counts() Counts {
	c := Counts{Points: make(map[Point]PointCounts, len(r.mounts)), Strays: r.strays.Load()}
	for _, m := range r.mounts {
		c.Points[m.point] = PointCounts{
			Reviews:   m.reviews.Load(),
			Probes:    m.probes.Load(),
			Malformed: m.malformed.Load(),
		}
	}
	return c
}

// URL is the address of a point. One that the recorder was not started with answers 404.
func (r *Recorder) URL(p Point) string { return "https://" + r.addr + "/" + string(p) }

// CA is the certificate, in PEM, of the authority that signed the serving certificate.
func (r *Recorder) CA() []byte { return append([]byte(nil), r.pki.ca...) }

// Kubeconfig is the webhook configuration with which an API server asks a point. It holds a client key, without
// which the recorder accepts no connection: write it to a file that only the API server can read.
func (r *Recorder) Kubeconfig(p Point) []byte {
	name := "recorder-" + string(p)
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: r.URL(p), CertificateAuthorityData: r.pki.ca}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: r.pki.clientCert,
		ClientKeyData:         r.pki.clientKey,
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
