package kind

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/clusters/local"
)

// sample is a cluster with something of everything.
func sample() Options {
	return Options{
		Image:         "example/node:v1.37.1",
		Version:       "1.37.1",
		ControlPlanes: []Worker{{}, {Version: "1.36.3"}},
		Workers:       []Worker{{}, {Version: "1.34.4"}, {Version: "1.36.3", Image: "example/node:v1.36.3"}},
		Options: local.Options{
			FeatureGates:        map[string]bool{"B": false, "A": true},
			AuthorizationConfig: []byte("kubeConfigFile: ${RUN_DIR}/recorder.kubeconfig\n"),
			AuditPolicy:         []byte("kind: Policy\n"),
			Files:               map[string][]byte{"recorder.kubeconfig": nil},
			KubeAPIServerArgs:   []string{"--authorization-policy-file=${RUN_DIR}/abac.jsonl"},
		},
	}
}

func TestConfig(t *testing.T) {
	o, err := sample().complete()
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.config(
		"authzconf-x",
		[]serverFolders{
			{"/state/config/0", "/state/audit/0"},
			{"/state/config/1", "/state/audit/1"},
			{"/state/config/2", "/state/audit/2"},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "config.yaml")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("kind's configuration differs from %s; if that is meant, set UPDATE_GOLDEN=1:\n%s", golden, got)
	}
	if files := sample().files(); string(files[authorizationFile]) != "kubeConfigFile: /etc/authzconf/recorder.kubeconfig\n" {
		t.Errorf("the folder's place is not filled in: %s", files[authorizationFile])
	}
}

func TestComplete(t *testing.T) {
	for name, tc := range map[string]struct {
		o    Options
		want string
	}{
		"nothing":   {Options{}, "no node image and no version"},
		"arguments": {Options{Version: "1.37.1", Options: local.Options{KubeAPIServerArgs: []string{"--v"}}}, `"--v" of kube-apiserver is not of the form --name=value`},
	} {
		if _, err := tc.o.complete(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	o, err := Options{Version: "1.36.3"}.complete()
	if err != nil || o.Image != "kindest/node:v1.36.3" {
		t.Errorf("%+v, %v", o, err)
	}
}

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: kube-apiserver, namespace: kube-system}
spec:
  containers:
  - name: kube-apiserver
    image: registry.k8s.io/kube-apiserver:v1.36.3
    command: [kube-apiserver, --allow-privileged=true, --feature-gates=A=true, --audit-log-mode=blocking]
`

func TestEditManifest(t *testing.T) {
	old := []arg{{"feature-gates", "A=true"}, {"audit-log-mode", "blocking"}}
	wanted := []arg{{"feature-gates", "A=false"}, {"audit-log-mode", "blocking"}}
	got, err := editManifest([]byte(manifest), old, wanted, "registry.k8s.io/kube-apiserver:v1.37.1", "second")
	if err != nil {
		t.Fatal(err)
	}
	var pod struct {
		Metadata struct{ Annotations map[string]string }
		Spec     struct {
			Containers []struct {
				Image   string
				Command []string
			}
		}
	}
	if err := yaml.Unmarshal(got, &pod); err != nil {
		t.Fatal(err)
	}
	c := pod.Spec.Containers[0]
	command := strings.Join(c.Command, " ")
	if command != "kube-apiserver --allow-privileged=true --feature-gates=A=false --audit-log-mode=blocking" {
		t.Errorf("command: %s", command)
	}
	if c.Image != "registry.k8s.io/kube-apiserver:v1.37.1" || pod.Metadata.Annotations[generation] != "second" {
		t.Errorf("%+v", pod)
	}
	for name, text := range map[string]string{"no YAML": "{", "two containers": strings.Replace(manifest, "  - name", "  - {name: other}\n  - name", 1)} {
		if _, err := editManifest([]byte(text), nil, nil, "", ""); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestParseNetworks(t *testing.T) {
	parse := func(text string) (Network, error) {
		found, err := parseNetworks([]byte(text))
		if err != nil || len(found) == 0 {
			return Network{}, errors.Join(err, errors.New("none"))
		}
		return found[0].parse()
	}
	n, err := parse(`[{"IPAM":{"Config":[{"Subnet":"fc00::/64"},{"Subnet":"172.18.0.0/16","Gateway":"172.18.0.1"}]}}]`)
	if err != nil || n.Gateway.String() != "172.18.0.1" || n.Subnet.String() != "172.18.0.0/16" {
		t.Errorf("%+v, %v", n, err)
	}
	if n, err = parse(`[{"IPAM":{"Config":[{"Subnet":"10.9.0.0/24"}]}}]`); err != nil || n.Gateway.String() != "10.9.0.1" {
		t.Errorf("without a gateway: %+v, %v", n, err)
	}
	for _, text := range []string{`[]`, `{`, `[{"IPAM":{"Config":[{"Subnet":"fc00::/64"}]}}]`} {
		if _, err := parse(text); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
	// Of duplicates the one that is used is kept, or else the one with the lowest ID.
	found, err := parseNetworks([]byte(`[{"Id":"c"},{"Id":"b"},{"Id":"a"},{"Id":"d","Containers":{"x":{}}}]`))
	var order string
	for _, f := range found {
		order += f.ID
	}
	if err != nil || order != "dabc" {
		t.Errorf("order %s, %v", order, err)
	}
}

func TestNameCluster(t *testing.T) {
	for asked, want := range map[string]string{
		"":                                  `^authzconf-[a-z0-9]{6}$`,
		"test":                              `^authzconf-test-[a-z0-9]{6}$`,
		"kind-1-37-nodes-1-34-1-36-gate-on": `^authzconf-kind-1-37-nodes-1-34-1-[a-z0-9]{6}$`,
	} {
		name := nameCluster(asked)
		if !regexp.MustCompile(want).MatchString(name) {
			t.Errorf("%q: got %s, want %s", asked, name, want)
		}
		if node := name + longestSuffix; len(node) > longestNode {
			t.Errorf("%s is too long for a node", node)
		}
	}
}
