package reference

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/conditional/model"
	"github.com/authzconf/authzconf/conditional/vectors"
)

// Where a server answers. The two paths may be any: a kubeconfig names them.
const (
	// ConditionsPath is for AuthorizationConditionsReview.
	ConditionsPath = "/conditions"
	// AdmitPath is for AdmissionReview, see Admission.
	AdmitPath = "/admit"
	// ConditionsContext is the context of the kubeconfig that reaches ConditionsPath, named as in the KEP's
	// AuthorizationConfiguration (conditionsEndpointKubeConfigContext).
	ConditionsContext = "authorization-conditions"
)

// Handler serves what answers both reviews: AuthorizationConditionsReview at ConditionsPath, SubjectAccessReview everywhere else.
func Handler(r model.Loaded) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(ConditionsPath, reference.Posted(func(body []byte) ([]byte, error) {
		req, err := vectors.DecodeConditions(body)
		if err != nil {
			return nil, err
		}
		return vectors.AnswerConditions(r.Evaluate(req))
	}))
	mux.Handle("/", reference.Posted(func(body []byte) ([]byte, error) {
		spec, err := vectors.DecodeAccess(body)
		if err != nil {
			return nil, err
		}
		return vectors.AnswerAccess(r.Review(spec))
	}))
	return mux
}

// Kubeconfig is that of a server, with the context of the conditions' endpoint. It holds a client key.
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
