package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/oracle"
)

// present are the roles and bindings of --rbac or --kubeconfig; nil if neither is given. Those that every cluster has
// are added to files.
func (f *adviseFlags) present(c *cobra.Command) (objects []map[string]any, err error) {
	switch {
	case f.kubeconfig != "" && len(f.rbac) > 0:
		return nil, errors.New("--rbac and --kubeconfig exclude each other")
	case f.kubeconfig != "":
		cluster, err := newLiveCluster(c.Context(), f.kubeconfig)
		if err != nil {
			return nil, err
		}
		return cluster.rbac()
	case len(f.rbac) == 0:
		return nil, nil
	}
	leftOut := map[string]int{}
	for _, path := range f.rbac {
		err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || file != path && !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) {
				return err
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			found, others, err := advice.ReadRBAC(file, raw)
			objects = append(objects, found...)
			for kind, n := range others {
				leftOut[kind] += n
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("--rbac: %w", err)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(leftOut)) {
		_, _ = fmt.Fprintf(c.ErrOrStderr(), "left out: %d of kind %s (not RBAC)\n", leftOut[kind], kind)
	}
	if !slices.ContainsFunc(objects, func(o map[string]any) bool { return o["roleRef"] != nil }) {
		return nil, fmt.Errorf("--rbac %s has no bindings (expected manifests, or what kubectl get clusterroles,clusterrolebindings,roles,rolebindings -A -o yaml writes)", strings.Join(f.rbac, ","))
	}
	return advice.Aggregated(oracle.WithBuiltInRoles(objects))
}

// holders says who may impersonate whom. Files with a binding to a role that is not in them do not say all.
func (f *adviseFlags) holders(c *cobra.Command, present []map[string]any) error {
	holders, dangling := advice.Holders(present)
	shown := slices.DeleteFunc(slices.Clone(holders), advice.Holder.Idle)
	if err := printAs(c.OutOrStdout(), f.output, "holders", struct {
		Holders  []advice.Holder   `json:"holders"`
		Shown    []advice.Holder   `json:"-"`
		Dangling []advice.Dangling `json:"dangling,omitempty"`
	}{holders, shown, dangling}); err != nil {
		return invalid(err)
	}
	if i := slices.IndexFunc(dangling, func(d advice.Dangling) bool { return !d.BuiltIn }); i >= 0 && f.kubeconfig == "" {
		return fmt.Errorf("--rbac %s: %s is bound to %s, which is not in the files: what it gives is not known (expected the file of the role, too)", strings.Join(f.rbac, ","), dangling[i].Binding, dangling[i].Role)
	}
	return nil
}

// printAs prints data as JSON, YAML or by a text of output.tmpl.
func printAs(w io.Writer, form, text string, data any) error {
	if form == "text" {
		return render(w, text, data)
	}
	raw, err := json.MarshalIndent(data, "", "  ")
	if err == nil && form == "yaml" {
		raw, err = yaml.JSONToYAML(raw)
	}
	if err == nil {
		_, err = fmt.Fprintln(w, strings.TrimRight(string(raw), "\n"))
	}
	return err
}

// rbac are the roles and bindings of the cluster.
func (l *liveCluster) rbac() (objects []map[string]any, err error) {
	for _, resource := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
		raw, err := l.client.RbacV1().RESTClient().Get().Resource(resource).DoRaw(l.ctx)
		if err != nil {
			return nil, invalid(fmt.Errorf("listing %s of the cluster: %w", resource, err))
		}
		found, _, err := advice.ReadRBAC(resource, raw)
		if err != nil {
			return nil, invalid(err)
		}
		objects = append(objects, found...)
	}
	return objects, nil
}
