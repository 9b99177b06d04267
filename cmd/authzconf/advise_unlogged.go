package main

import (
	"cmp"
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
	"github.com/authzconf/authzconf/advice/verification"
	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// present are the roles and bindings of --rbac, with those that every cluster has, or of --kubeconfig; nil without either.
func (f *adviseFlags) present(c *cobra.Command) (objects []map[string]any, err error) {
	switch {
	case f.kubeconfig != "" && len(f.rbac) > 0:
		return nil, errors.New("--rbac and --kubeconfig exclude each other")
	case f.kubeconfig != "":
		if f.live, err = newLiveCluster(c.Context(), f.kubeconfig, f.context); err != nil {
			return nil, err
		}
		if err := f.live.Require(c.Context(), existing.Advising(f.verify)); err != nil {
			return nil, invalid(err)
		}
		return f.live.rbac()
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

// review asks the cluster what it makes of what was seen and its neighbours.
func (l *liveCluster) review(seen []advice.Seen, neighbours []advice.Neighbour) (*verification.Findings, error) {
	facts, err := l.Facts(l.ctx)
	if err != nil {
		return nil, err
	}
	gate := map[bool]scenarios.Gate{true: scenarios.GateOn, false: scenarios.GateOff}[facts.GateOn]
	server, err := oracle.New(oracle.Config{
		Kubernetes: cmp.Or(facts.Emulated, facts.GitVersion), Binary: facts.GitVersion, Gate: gate, Chain: []oracle.Authorizer{{Authorize: l.authorize}},
	})
	if err != nil {
		return nil, err
	}
	found, err := verification.Review(l.ctx, server, seen, neighbours)
	found.Version = fmt.Sprintf("%s, gate %s", facts.GitVersion, gate)
	return found, cmp.Or(l.err, err)
}

func (l *liveCluster) rbac() (objects []map[string]any, err error) {
	for _, resource := range existing.RBAC() {
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

type judgedProfile struct {
	advice.Profile
	Kinds []advice.Judged `json:"sends"`
	// Constrained are the grants that take the place of the legacy ones.
	Constrained []scenarios.Grant `json:"constrained"`
	Manifests   string            `json:"-"`

	summary *advice.Summary
}

func judged(p advice.Profile) (j judgedProfile, err error) {
	j.Profile = p
	if j.summary, j.Kinds, err = p.Summary(); err != nil {
		return j, err
	}
	j.Constrained = j.summary.Advice().Grants
	manifests, err := advice.Manifests(advice.RBAC(j.Constrained))
	j.Manifests = string(manifests)
	return j, err
}

// Blocked are the kinds that no constrained mode serves.
func (j judgedProfile) Blocked() []advice.Judged {
	return slices.DeleteFunc(slices.Clone(j.Kinds), func(k advice.Judged) bool { return k.Mode != "" })
}

func (f *adviseFlags) advisedProfile(c *cobra.Command) error {
	profiles, err := advice.Profiles()
	if err != nil {
		return err
	}
	all := make([]judgedProfile, len(profiles))
	for i, p := range profiles {
		if all[i], err = judged(p); err != nil {
			return err
		}
	}
	if f.profile == "list" {
		if f.output != "text" {
			return printAs(c.OutOrStdout(), f.output, "", all)
		}
		return renderTable(c.OutOrStdout(), "profiles", all, 0)
	}
	i := slices.IndexFunc(all, func(j judgedProfile) bool { return j.Name == f.profile })
	if i < 0 {
		names := scenarios.Each(all, func(j judgedProfile) string { return j.Name })
		hint := "expected one of " + strings.Join(names, ", ")
		if near := nearest(f.profile, names); len(near) > 0 {
			hint = "nearest: " + strings.Join(near, ", ")
		}
		return fmt.Errorf("--profile %q is not known (%s; --profile list has all)", f.profile, hint)
	}
	j := all[i]
	if err := printAs(c.OutOrStdout(), f.output, "profile", j); err != nil {
		return invalid(err)
	}
	if f.verify {
		var refused []advice.Neighbour
		for _, s := range j.summary.Seen() {
			if s.Mode == "" {
				refused = append(refused, advice.Neighbour{Seen: s, Differs: "kind, which needs legacy grants"})
			}
		}
		err = f.try(c, j.summary.Seen(), refused, []byte(j.Manifests))
	}
	return cmp.Or(err, failedIf(len(j.Blocked()) > 0))
}

// nearest are the names that may be meant, as cobra tells them of commands.
func nearest(name string, names []string) []string {
	root := &cobra.Command{SuggestionsMinimumDistance: 3}
	for _, known := range names {
		c := &cobra.Command{Use: known, Run: func(*cobra.Command, []string) {}}
		if strings.Contains(name, known) || strings.Contains(known, name) {
			c.SuggestFor = []string{name}
		}
		root.AddCommand(c)
	}
	return root.SuggestionsFor(name)
}
