package today

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// writeKubeconfig writes a file for the credentials of a configuration.
func writeKubeconfig(t *testing.T, from *rest.Config) string {
	t.Helper()
	to := clientcmdapi.NewConfig()
	to.CurrentContext = "admin"
	to.Clusters["admin"] = &clientcmdapi.Cluster{
		Server:                   from.Host,
		CertificateAuthorityData: from.CAData,
		CertificateAuthority:     from.CAFile,
	}
	to.AuthInfos["admin"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: from.CertData,
		ClientKeyData:         from.KeyData,
		ClientCertificate:     from.CertFile,
		ClientKey:             from.KeyFile,
		Token:                 from.BearerToken,
	}
	to.Contexts["admin"] = &clientcmdapi.Context{Cluster: "admin", AuthInfo: "admin", Namespace: "default"}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*to, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// canI returns what kubectl auth can-i prints about a user of the webhook, and its exit code.
func canI(t *testing.T, kubeconfig, user string, about ...string) (string, int) {
	t.Helper()
	args := append([]string{"--kubeconfig", kubeconfig, "auth", "can-i", "--as", user, "--as-group", Group}, about...)
	cmd := exec.CommandContext(t.Context(), "kubectl", args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String()), cmd.ProcessState.ExitCode()
}

// TestCanI checks kubectl auth can-i, by which users are to learn about restrictions (section "Abstract"). Today it
// shows no conditions. It answers yes to a request that is over-granted and refused in admission, and no to a request
// that an authorizer allows on conditions.
func TestCanI(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("there is no kubectl")
	}
	c := startForTest(t, StartOptions{})
	c.blueOnly(t)
	kubeconfig := writeKubeconfig(t, c.Admin())
	conditional := &answers{status: `{"allowed":false,"reason":"the color decides",` + strings.Replace(chain, "%s", "Allow", 1) + `}`}
	for _, step := range []struct {
		name, user, out string
		about           []string
		code            int
	}{
		{"what is over-granted", "ann", "yes", []string{"create", "configmaps"}, 0},
		{"what nobody allows", "eve", "no - conditional: no policy applies", []string{"create", "configmaps"}, 1},
		{"what is allowed on conditions", "cora", "no - conditional: the color decides", []string{"create", "configmaps"}, 1},
		{"everything of who is allowed on conditions", "cora", "selfsubjectreviews", []string{"--list"}, 0},
	} {
		t.Run(step.name, func(t *testing.T) {
			if c.answer(reference.Handler(wire.Seed, Today{Authorizer: c.Authorizer})); step.user == "cora" {
				c.answer(conditional)
			}
			out, code := canI(t, kubeconfig, step.user, step.about...)
			t.Logf("kubectl auth can-i %s: %s", strings.Join(step.about, " "), out)
			isList := step.about[0] == "--list"
			isRight := out == step.out ||
				isList && strings.Contains(out, step.out) && !strings.Contains(out, "configmaps")
			if !isRight || code != step.code {
				t.Errorf("it prints %q and exits with %d, want %q and %d", out, code, step.out, step.code)
			}
		})
	}
}
