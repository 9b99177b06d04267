package certification

import (
	"net/http"

	webhook "github.com/authzconf/authzconf/certify/reference"
	reference "github.com/authzconf/authzconf/conditional/reference"
)

// ServeReference runs the reference authorizer with the policies of a file, and writes the kubeconfig for it. The
// file is read again when it has changed, so that a policy hook may overwrite it.
func ServeReference(policies, kubeconfig string) (stop func() error, err error) {
	file, first, err := webhook.Follow(policies, reference.Load)
	if err != nil {
		return nil, err
	}
	a := reference.New(first)
	right := reference.Handler(a)
	return webhook.ServeFor(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s, changed, err := file.Changed()
		if err != nil {
			http.Error(w, "the policies cannot be read", http.StatusInternalServerError)
			return
		}
		if changed {
			a.Use(s)
		}
		right.ServeHTTP(w, req)
	}), kubeconfig, reference.Kubeconfig)
}
