package recorder

import (
	"encoding/json"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Script decides what a point answers to a review. It is called from several
// goroutines, and not for probes, which get no opinion everywhere.
type Script func(authorizationv1.SubjectAccessReviewSpec) Answer

// Answer is what a scripted point sends back. The zero value is no opinion.
type Answer struct {
	// Status is the decision. Nothing keeps it from being contradictory.
	Status authorizationv1.SubjectAccessReviewStatus
	// Code and Body, if Code is set, are sent instead of a review: an error, or garbage.
	Code int
	Body string
	// Delay is how long the answer takes. It ends early when the API server goes away.
	Delay time.Duration
}

// send answers as the script says.
func (a *Answer) send(w http.ResponseWriter, req *http.Request, apiVersion string) {
	if a.Delay > 0 {
		timer := time.NewTimer(a.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-req.Context().Done():
			return
		}
	}
	if a.Code != 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(a.Code)
		_, _ = w.Write([]byte(a.Body))
		return
	}
	w.Header()["Content-Type"] = contentType
	_ = json.NewEncoder(w).Encode(struct {
		metav1.TypeMeta `json:",inline"`
		Status          authorizationv1.SubjectAccessReviewStatus `json:"status"`
	}{metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}, a.Status})
}
