package reference

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/conditional/review"
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
	mux.Handle(ConditionsPath, reference.Posted(func(body []byte) ([]byte, error) {
		req, err := review.DecodeConditions(body)
		if err != nil {
			return nil, err
		}
		return review.AnswerConditions(r.Evaluate(req))
	}))
	mux.Handle("/", reference.Posted(func(body []byte) ([]byte, error) {
		spec, err := review.DecodeAccess(body)
		if err != nil {
			return nil, err
		}
		return review.AnswerAccess(r.Review(spec))
	}))
	return mux
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
