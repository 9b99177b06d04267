package target

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/authorizers/recorder"
	"github.com/authzconf/authzconf/clusters/local"
)

// chain is the authorizer chain of a target: the recorder before and after the
// authorizers that every ordinary cluster has. The recorder never decides.
type chain struct {
	recorder *recorder.Recorder
	// cacheFields says whether the version knows cacheAuthorizedRequests (1.34
	// and later); before, the shortest time to live stands for "no cache".
	cacheFields bool
}

// config renders the AuthorizationConfiguration.
func (c chain) config() ([]byte, error) {
	return yaml.Marshal(apiserverv1.AuthorizationConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiserver.config.k8s.io/v1", Kind: "AuthorizationConfiguration"},
		Authorizers: []apiserverv1.AuthorizerConfiguration{
			c.webhook(recorder.Front),
			{Type: "Node", Name: "node"},
			{Type: "RBAC", Name: "rbac"},
			c.webhook(recorder.Back),
		},
	})
}

// files are the webhook kubeconfigs, which contain keys, by the names that
// config refers to them by.
func (c chain) files() map[string][]byte {
	files := map[string][]byte{}
	for _, p := range []recorder.Point{recorder.Front, recorder.Back} {
		files[kubeconfigName(p)] = c.recorder.Kubeconfig(p)
	}
	return files
}

func kubeconfigName(p recorder.Point) string { return "recorder-" + string(p) + ".kubeconfig" }

func (c chain) webhook(p recorder.Point) apiserverv1.AuthorizerConfiguration {
	file := local.DirPlaceholder + "/" + kubeconfigName(p)
	w := &apiserverv1.WebhookConfiguration{
		// A time to live of 0 would mean the default, minutes.
		AuthorizedTTL:                            metav1.Duration{Duration: time.Nanosecond},
		UnauthorizedTTL:                          metav1.Duration{Duration: time.Nanosecond},
		Timeout:                                  metav1.Duration{Duration: 10 * time.Second},
		SubjectAccessReviewVersion:               "v1",
		MatchConditionSubjectAccessReviewVersion: "v1",
		// A review that was not recorded must not let a request through.
		FailurePolicy:  apiserverv1.FailurePolicyDeny,
		ConnectionInfo: apiserverv1.WebhookConnectionInfo{Type: "KubeConfigFile", KubeConfigFile: &file},
	}
	if c.cacheFields {
		no := false
		w.CacheAuthorizedRequests, w.CacheUnauthorizedRequests = &no, &no
	}
	return apiserverv1.AuthorizerConfiguration{Type: "Webhook", Name: "recorder-" + string(p), Webhook: w}
}
