package kind

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/yaml"
)

// config is kind's configuration of a cluster whose API server reads configDir
// and writes its audit log to auditDir, both of this machine.
func (o Options) config(name, configDir, auditDir string) (*v1alpha4.Cluster, error) {
	merge, json6902, err := o.patches()
	if err != nil {
		return nil, err
	}
	c := &v1alpha4.Cluster{
		TypeMeta: v1alpha4.TypeMeta{Kind: "Cluster", APIVersion: "kind.x-k8s.io/v1alpha4"},
		Name:     name,
		Networking: v1alpha4.Networking{
			APIServerAddress: "127.0.0.1",
			IPFamily:         v1alpha4.IPv4Family,
		},
		KubeadmConfigPatches:         merge,
		KubeadmConfigPatchesJSON6902: json6902,
		Nodes: []v1alpha4.Node{{
			Role:  v1alpha4.ControlPlaneRole,
			Image: o.Image,
			ExtraMounts: []v1alpha4.Mount{
				{HostPath: configDir, ContainerPath: nodeConfigDir, Readonly: true},
				{HostPath: auditDir, ContainerPath: nodeAuditDir},
			},
		}},
	}
	for range o.Workers {
		c.Nodes = append(c.Nodes, v1alpha4.Node{Role: v1alpha4.WorkerRole, Image: o.Image})
	}
	return c, nil
}

// patches change kubeadm's configuration. Which of its versions is used follows from the version of Kubernetes
// (kind: v1beta4 since 1.36); a patch for the other one matches nothing.
func (o Options) patches() (merge []string, json6902 []v1alpha4.PatchJSON6902, err error) {
	// Volumes of a static pod, as kubeadm writes them (HostPathMount).
	volumes := []map[string]any{
		{"name": "authzconf-config", "hostPath": nodeConfigDir, "mountPath": nodeConfigDir, "readOnly": true, "pathType": "Directory"},
		{"name": "authzconf-audit", "hostPath": nodeAuditDir, "mountPath": nodeAuditDir, "readOnly": false, "pathType": "Directory"},
	}
	byName := map[string]string{}
	appended := []map[string]any{}
	for _, a := range o.args() {
		byName[a.name] = a.value
		appended = append(appended, map[string]any{
			"op": "add", "path": "/apiServer/extraArgs/-", "value": map[string]string{"name": a.name, "value": a.value},
		})
	}
	for _, p := range []struct {
		version   string
		apiServer map[string]any
	}{
		{"v1beta3", map[string]any{"extraArgs": byName, "extraVolumes": volumes}},
		{"v1beta4", map[string]any{"extraVolumes": volumes}},
	} {
		patch, err := yaml.Marshal(map[string]any{
			"apiVersion": "kubeadm.k8s.io/" + p.version, "kind": "ClusterConfiguration", "apiServer": p.apiServer,
		})
		if err != nil {
			return nil, nil, fmt.Errorf("a patch of kubeadm's configuration: %w", err)
		}
		merge = append(merge, string(patch))
	}
	raw, err := json.Marshal(appended)
	if err != nil {
		return nil, nil, err
	}
	return merge, []v1alpha4.PatchJSON6902{{Group: "kubeadm.k8s.io", Version: "v1beta4", Kind: "ClusterConfiguration", Patch: string(raw)}}, nil
}
