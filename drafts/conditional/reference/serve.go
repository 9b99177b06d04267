package reference

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	webhook "github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/drafts/conditional/model"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// The path and the context at which a server answers reviews of conditions. Other paths are possible, because a
// kubeconfig names the path.
const (
	// ConditionsPath is the path for AuthorizationConditionsReview.
	ConditionsPath = "/conditions"
	// ConditionsContext is the context of the kubeconfig for ConditionsPath. It is named as in the KEP's
	// AuthorizationConfiguration (conditionsEndpointKubeConfigContext).
	ConditionsContext = "authorization-conditions"
)

// Handler serves an authorizer that answers both reviews, in a revision of the wire: AuthorizationConditionsReview at
// ConditionsPath, SubjectAccessReview at every other path.
func Handler(w *wire.Revision, r model.LoadedAuthorizer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(ConditionsPath, webhook.Posted(func(body []byte) ([]byte, error) {
		req, err := w.DecodeConditions(body)
		if err != nil {
			return nil, err
		}
		return w.AnswerConditions(req.UID, r.Evaluate(req))
	}))
	mux.Handle("/", webhook.Posted(func(body []byte) ([]byte, error) {
		spec, err := w.DecodeAccess(body)
		if err != nil {
			return nil, err
		}
		return w.AnswerAccess(r.Review(spec))
	}))
	return mux
}

// Kubeconfig returns the kubeconfig of a server, with the context for conditions. It contains a client key.
func Kubeconfig(s *webhook.Server) ([]byte, error) {
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
	cluster.Server = s.URL + ConditionsPath
	c.Clusters[ConditionsContext] = cluster
	c.Contexts[ConditionsContext] = &clientcmdapi.Context{Cluster: ConditionsContext, AuthInfo: current.AuthInfo}
	return clientcmd.Write(*c)
}
