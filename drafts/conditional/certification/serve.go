package certification

import (
	"net/http"

	webhook "github.com/authzconf/authzconf/certify/reference"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// ServeReference serves the reference authorizer in a revision of the wire with the policies of a file, and writes a
// kubeconfig for it. It reads the file again when the file has changed, so that a policy hook can overwrite it.
func ServeReference(w *wire.Revision, policies, kubeconfig string) (stop func() error, err error) {
	file, first, err := webhook.Follow(policies, reference.Load)
	if err != nil {
		return nil, err
	}
	a := reference.New(w, first)
	right := reference.Handler(w, a)
	return webhook.ServeFor(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		s, changed, err := file.Changed()
		if err != nil {
			http.Error(rw, "the policies cannot be read", http.StatusInternalServerError)
			return
		}
		if changed {
			a.Use(s)
		}
		right.ServeHTTP(rw, req)
	}), kubeconfig, reference.Kubeconfig)
}
