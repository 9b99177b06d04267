package deputy

import (
	"net/http"
	"strings"
)

// flowSchemaHeader is the header with the UID of a flow schema.
const flowSchemaHeader = "X-Kubernetes-Pf-Flowschema-Uid"

// reply is the answer to a request of an attack.
type reply struct {
	Code int `json:"code,omitempty"`
	// AuditID is the Audit-Id header of the answer. A proxy can write one into answers of its own, too
	// (attackJudge.namesRefusals).
	AuditID string `json:"auditID,omitempty"`
	// Flow is the flow schema of the API server's priority and fairness. No answer of a proxy has one.
	Flow string `json:"flowSchemaUID,omitempty"`
	// Problem is the reason why no answer came, or only a part of one.
	Problem string `json:"problem,omitempty"`
	// Kind is the kind of the object in the answer, over HTTP/1.1.
	Kind string `json:"kind,omitempty"`
}

// hasResult reports whether there is an answer, or a reason why there is none.
func (r reply) hasResult() bool { return r.Code != 0 || r.Problem != "" }

// isSuccess reports whether the code of the answer means success.
func (r reply) isSuccess() bool { return r.Code/100 == 2 }

// isPodList reports whether the answer is a list of pods, which no proxy makes up.
func (r reply) isPodList() bool { return r.isSuccess() && r.Kind == "PodList" }

// isRefusal reports whether the answer is a Status of a request that failed.
func (r reply) isRefusal() bool { return r.Kind == "Status" && r.Code >= http.StatusBadRequest }

// revealsContent reports whether an answer shows what only somebody with permission may read: a list, or that an object
// does not exist.
func (r reply) revealsContent() bool {
	isList := r.isSuccess() && strings.HasSuffix(r.Kind, "List")
	isAbsence := r.Code == http.StatusNotFound && r.Kind == "Status"
	return isList || isAbsence
}
