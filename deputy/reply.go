package deputy

import (
	"net/http"
	"strings"
)

// flowSchemaHeader has the UID of a flow schema.
const flowSchemaHeader = "X-Kubernetes-Pf-Flowschema-Uid"

// reply is the answer to a request of an attack.
type reply struct {
	Code int `json:"code,omitempty"`
	// AuditID is the one that the API server gave its answer, empty if it is not one of its own.
	AuditID string `json:"auditID,omitempty"`
	// Flow is the flow schema of the API server's priority and fairness, which no answer of a proxy has.
	Flow string `json:"flowSchemaUID,omitempty"`
	// Problem says why there is no answer, or no whole one.
	Problem string `json:"problem,omitempty"`
	// Kind is the kind of object in the answer, over HTTP/1.1.
	Kind string `json:"kind,omitempty"`
}

// isKnown reports whether this is an answer, or says why there is none.
func (r reply) isKnown() bool { return r.Code != 0 || r.Problem != "" }

// succeeded reports whether the request was answered with a code of success.
func (r reply) succeeded() bool { return r.Code/100 == 2 }

// isPodList reports whether the answer is a list of pods: no proxy makes one up.
func (r reply) isPodList() bool { return r.succeeded() && r.Kind == "PodList" }

// isRefusal reports whether the answer is a Status of a request that failed.
func (r reply) isRefusal() bool { return r.Kind == "Status" && r.Code >= http.StatusBadRequest }

// tells reports whether an answer has what only somebody with permission may read: a list, or that an object does not
// exist.
func (r reply) tells() bool {
	isList := r.succeeded() && strings.HasSuffix(r.Kind, "List")
	isAbsence := r.Code == http.StatusNotFound && r.Kind == "Status"
	return isList || isAbsence
}
