package runner

import (
	"encoding/json"
	"net/http"
)

// review is the part of a ConversionReview (apiextensions.k8s.io/v1) that matters.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID     string           `json:"uid"`
	Desired string           `json:"desiredAPIVersion"`
	Objects []map[string]any `json:"objects"`
}

type response struct {
	UID     string           `json:"uid"`
	Objects []map[string]any `json:"convertedObjects"`
	Result  map[string]any   `json:"result"`
}

// converter converts widgets between their versions: what v1 calls nodeName is host
// in v1beta1.
func converter() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in review
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Request == nil {
			http.Error(w, "not a ConversionReview", http.StatusBadRequest)
			return
		}
		from, to := "host", "nodeName"
		if in.Request.Desired == "granular.authzconf.dev/v1beta1" {
			from, to = to, from
		}
		out := review{APIVersion: in.APIVersion, Kind: in.Kind, Response: &response{UID: in.Request.UID, Result: map[string]any{"status": "Success"}}}
		for _, o := range in.Request.Objects {
			o["apiVersion"] = in.Request.Desired
			if spec, ok := o["spec"].(map[string]any); ok {
				if v, ok := spec[from]; ok {
					spec[to] = v
					delete(spec, from)
				}
			}
			out.Response.Objects = append(out.Response.Objects, o)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out)
	})
}
