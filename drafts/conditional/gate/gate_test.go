package gate

import (
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// TestUnknownGate checks that a kube-apiserver of today does not start with the gate, and that this is an error and not
// a verdict.
func TestUnknownGate(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	t.Setenv("TEST_ASSET_KUBE_APISERVER", "")
	play, err := Run(t.Context(), nil, Options{Release: local.Newest(), Binaries: &local.Binaries{}, Wire: wire.Merged, Played: func() {}})
	if want := "kube-apiserver v" + local.Newest().Version + " does not know the gate ConditionalAuthorization"; err == nil ||
		err.Error() != want ||
		play != nil {
		t.Errorf("%v, %v; want %s", play, err, want)
	}
}
