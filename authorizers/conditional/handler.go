package conditional

import (
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/authzconf/authzconf/authorizers/reference"
	"github.com/authzconf/authzconf/vectors/review"
)

// Where a server answers. The two paths may be any: a kubeconfig names them.
const (
	// ConditionsPath is for AuthorizationConditionsReview.
	ConditionsPath = "/conditions"
	// AdmitPath is for AdmissionReview, see Admission.
	AdmitPath = "/admit"
	// ConditionsContext is the context of the kubeconfig that reaches
	// ConditionsPath, named as in the KEP's AuthorizationConfiguration
	// (conditionsEndpointKubeConfigContext).
	ConditionsContext = "authorization-conditions"

	// maxBody is what an API server itself accepts as a request body.
	maxBody = 3 << 20
)

// Reviewer answers both reviews.
type Reviewer interface {
	Review(review.SubjectAccessReviewSpec) review.SubjectAccessReviewStatus
	Evaluate(*review.AuthorizationConditionsRequest) review.AuthorizationConditionsResponse
}

// Handler serves a reviewer: AuthorizationConditionsReview at ConditionsPath,
// SubjectAccessReview everywhere else.
func Handler(r Reviewer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(ConditionsPath, posted(func(body []byte) ([]byte, error) {
		req, err := review.DecodeConditions(body)
		if err != nil {
			return nil, err
		}
		return review.AnswerConditions(r.Evaluate(req))
	}))
	mux.Handle("/", posted(func(body []byte) ([]byte, error) {
		spec, err := review.DecodeAccess(body)
		if err != nil {
			return nil, err
		}
		return review.AnswerAccess(r.Review(spec))
	}))
	return mux
}

// posted answers bodies. An error is about what was sent.
func posted(answer func(body []byte) ([]byte, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "reviews are posted", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
		if err != nil {
			http.Error(w, "the body is too large, or ends early", http.StatusBadRequest)
			return
		}
		out, err := answer(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out) // an error means that the client has gone away
	})
}

// Kubeconfig is that of a server, with the context of the conditions' endpoint. It
// holds a client key.
func Kubeconfig(s *reference.Server) ([]byte, error) {
	raw, err := s.Kubeconfig()
	if err != nil {
		return nil, err
	}
	c, err := clientcmd.Load(raw)
	if err != nil {
		return nil, fmt.Errorf("conditional: %w", err)
	}
	current := c.Contexts[c.CurrentContext]
	cluster := c.Clusters[current.Cluster].DeepCopy()
	cluster.Server = s.Base() + ConditionsPath
	c.Clusters[ConditionsContext] = cluster
	c.Contexts[ConditionsContext] = &clientcmdapi.Context{Cluster: ConditionsContext, AuthInfo: current.AuthInfo}
	return clientcmd.Write(*c)
}
