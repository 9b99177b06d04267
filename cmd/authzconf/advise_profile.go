package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/scenarios"
)

// judgedProfile is a profile with what becomes of it.
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

// advisedProfile is advise --profile.
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
		return fmt.Errorf("--profile %q is not known (%s; --profile list has all)", f.profile, nearest(f.profile, all))
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
		if err := f.try(c, j.summary.Seen(), refused, []byte(j.Manifests)); err != nil {
			return err
		}
	}
	return failedIf(len(j.Blocked()) > 0)
}

// nearest are the names that may be meant, as cobra tells them of commands, or all.
func nearest(name string, all []judgedProfile) string {
	names := &cobra.Command{SuggestionsMinimumDistance: 3}
	for _, j := range all {
		known := &cobra.Command{Use: j.Name, Run: func(*cobra.Command, []string) {}}
		if strings.Contains(name, j.Name) || strings.Contains(j.Name, name) {
			known.SuggestFor = []string{name}
		}
		names.AddCommand(known)
	}
	if found := names.SuggestionsFor(name); len(found) > 0 {
		return "nearest: " + strings.Join(found, ", ")
	}
	return "expected one of " + strings.Join(scenarios.Each(all, func(j judgedProfile) string { return j.Name }), ", ")
}
