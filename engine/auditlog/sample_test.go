package auditlog_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// sample is an audit log as a busy cluster's API server writes it at level Metadata, with a share of requests that
// impersonate.
type sample struct {
	// size is how many bytes it has at least.
	size int64
	// perMille of the requests impersonate somebody.
	perMille int
	seed     uint64
}

type object = map[string]any

// write writes the log and returns how many of its events impersonate.
func (o sample) write(w io.Writer) (impersonated int, err error) {
	random := rand.New(rand.NewPCG(o.seed, 0))
	out := bufio.NewWriterSize(w, 1<<20)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for size := int64(0); size < o.size; {
		at = at.Add(time.Duration(random.IntN(2_000_000)))
		as := random.IntN(1000) < o.perMille
		raw, err := line(random, at, as)
		if err != nil {
			return impersonated, err
		}
		if as {
			impersonated++
		}
		n, err := out.Write(raw)
		if err != nil {
			return impersonated, err
		}
		size += int64(n)
	}
	return impersonated, out.Flush()
}

// verbs with the form of their path.
var verbs = []struct {
	verb string
	name bool
}{{"get", true}, {"list", false}, {"watch", false}, {"update", true}, {"patch", true}, {"create", false}}

var resources = []struct{ group, version, resource string }{
	{"", "v1", "pods"},
	{"", "v1", "configmaps"},
	{"", "v1", "events"},
	{"apps", "v1", "deployments"},
	{"coordination.k8s.io", "v1", "leases"},
}

// event has its fields in the order in which API servers write them.
type event struct {
	Kind             string   `json:"kind"`
	APIVersion       string   `json:"apiVersion"`
	Level            string   `json:"level"`
	AuditID          string   `json:"auditID"`
	Stage            string   `json:"stage"`
	RequestURI       string   `json:"requestURI"`
	Verb             string   `json:"verb"`
	User             object   `json:"user"`
	ImpersonatedUser object   `json:"impersonatedUser,omitempty"`
	SourceIPs        []string `json:"sourceIPs"`
	UserAgent        string   `json:"userAgent"`
	ObjectRef        object   `json:"objectRef"`
	ResponseStatus   object   `json:"responseStatus"`
	Received         string   `json:"requestReceivedTimestamp"`
	Stamp            string   `json:"stageTimestamp"`
	Annotations      object   `json:"annotations"`
}

func line(random *rand.Rand, at time.Time, as bool) ([]byte, error) {
	v, r := verbs[random.IntN(len(verbs))], resources[random.IntN(len(resources))]
	namespace := fmt.Sprintf("team-%d", random.IntN(20))
	path, ref := "/api/"+r.version, object{"resource": r.resource, "namespace": namespace, "apiVersion": r.version}
	if r.group != "" {
		path, ref["apiGroup"] = "/apis/"+r.group+"/"+r.version, r.group
	}
	path += "/namespaces/" + namespace + "/" + r.resource
	switch {
	case v.name:
		name := fmt.Sprintf("web-%d", random.IntN(10))
		path += "/" + name
		ref["name"] = name
	case v.verb == "watch":
		path += "?allowWatchBookmarks=true&resourceVersion=123456&timeoutSeconds=435&watch=true"
	case v.verb == "list":
		path += "?limit=500"
	}
	account := fmt.Sprintf("controller-%d", random.IntN(30))
	e := event{
		Kind:       "Event",
		APIVersion: "audit.k8s.io/v1",
		Level:      "Metadata",
		Stage:      "ResponseComplete",
		AuditID: fmt.Sprintf(
			"%08x-%04x-4%03x-8%03x-%012x",
			random.Uint32(),
			random.IntN(1<<16),
			random.IntN(1<<12),
			random.IntN(1<<12),
			random.Int64N(1<<48),
		),
		RequestURI: path,
		Verb:       v.verb,
		SourceIPs:  []string{fmt.Sprintf("10.0.%d.%d", random.IntN(256), random.IntN(256))},
		UserAgent:  "kube-controller-manager/v1.37.1 (linux/amd64) kubernetes/0123456/system:serviceaccount:kube-system",
		User: object{
			"username": "system:serviceaccount:kube-system:" + account, "uid": "6c5f4e3d-2b1a-4098-8765-43210fedcba9",
			"groups": []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
			"extra":  object{"authentication.kubernetes.io/credential-id": []string{fmt.Sprintf("JTI=%016x", random.Uint64())}},
		},
		ObjectRef:      ref,
		ResponseStatus: object{"metadata": object{}, "code": 200},
		Received:       at.Format("2006-01-02T15:04:05.000000Z"),
		Stamp:          at.Add(3 * time.Millisecond).Format("2006-01-02T15:04:05.000000Z"),
		Annotations: object{
			"authorization.k8s.io/decision": "allow",
			"authorization.k8s.io/reason": fmt.Sprintf(
				"RBAC: allowed by ClusterRoleBinding %q of ClusterRole %q to ServiceAccount %q",
				account,
				account,
				account+"/kube-system",
			),
		},
	}
	if as {
		e.User["username"] = "system:serviceaccount:periscope:periscope"
		e.ImpersonatedUser = object{
			"username": fmt.Sprintf("user-%d@corp", random.IntN(50)),
			"groups": []string{
				"periscope-tier:" + []string{"read", "triage", "write", "maintain", "admin"}[random.IntN(5)],
				"system:authenticated",
			},
		}
	}
	raw, err := json.Marshal(e)
	return append(raw, '\n'), err
}
