package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/advice/verification"
	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/scenarios"
)

type adviseFlags struct {
	rbac        []string
	kubeconfig  string
	context     string
	live        *liveCluster // that of kubeconfig
	profile     string
	output      string
	options     advice.Options
	verify      bool
	verifyLimit int
	seed        uint64
	kubernetes  string
}

func newAdvise() *cobra.Command {
	var flags adviseFlags
	c := commandWith("advise [AUDIT-LOG...]", flags.run)
	fl := c.Flags()
	fl.StringSliceVar(
		&flags.rbac,
		"rbac",
		nil,
		"the present roles and bindings: files of manifests or folders of them, also as kubectl get -o yaml writes them; without a log, who may impersonate whom by them",
	)
	fl.StringVar(
		&flags.kubeconfig,
		"kubeconfig",
		"",
		"the present roles and bindings are those of this cluster, which are only listed; --verify asks it",
	)
	fl.StringVar(&flags.context, "context", "", "the context of --kubeconfig (default: its current one)")
	fl.StringVar(&flags.profile, "profile", "", "instead of a log, what this product is known to do; list names all")
	fl.StringVarP(&flags.output, "output", "o", "text", "without a log: text, json or yaml")
	fl.IntVar(
		&flags.options.MaxNames,
		"max-names",
		0,
		"name at most this many objects in a rule; beyond it, the rule is for all objects of the resource (0: name every one)",
	)
	fl.IntVar(&flags.options.MaxSeen, "max-seen", 0, "keep at most this many different impersonations in memory (default 1000000)")
	fl.BoolVar(
		&flags.verify,
		"verify",
		false,
		"try the RBAC on a local control plane; with --kubeconfig, ask that cluster by access reviews alone whether it has it",
	)
	fl.IntVar(
		&flags.verifyLimit,
		"verify-limit",
		2000,
		"with --verify, send at most this many of the impersonations that were seen, chosen by the seed (0: all)",
	)
	fl.Uint64Var(&flags.seed, "seed", 1, "seed of that choice")
	fl.StringVar(&flags.kubernetes, "kubernetes", matrix.Newest(), "with --verify, the version to try on, of "+matrix.Known())
	programFlags(fl)
	return c
}

func (f *adviseFlags) run(c *cobra.Command, paths []string) error {
	if f.options.MaxNames < 0 || f.options.MaxSeen < 0 || f.verifyLimit < 0 {
		return errors.New("--max-names, --max-seen and --verify-limit are not negative")
	}
	if err := checkForm(f.output); err != nil {
		return err
	}
	present, err := f.readPresent(c)
	switch {
	case err != nil:
		return err
	case f.profile != "":
		return f.adviseOnProfile(c)
	case len(paths) == 0 && present == nil:
		return errors.New("nothing to advise on (expected audit logs, --rbac FILE|DIR, --kubeconfig FILE or --profile NAME)")
	case len(paths) == 0:
		return f.printHolders(c, present)
	}
	summary, err := advice.NewSummary(f.options)
	if err != nil {
		return err
	}
	if err := readAuditLogs(c, paths, summary, "advise on"); err != nil {
		return err
	}
	a := summary.Advice()
	manifests, err := advice.Manifests(advice.RBAC(a.Grants))
	if err != nil {
		return err
	}
	err = render(c.OutOrStdout(), "advice", struct {
		*advice.Advice
		Present   []map[string]any
		Manifests string
	}{a, present, string(manifests)})
	if err != nil {
		return invalid(err)
	}
	if f.verify {
		err = f.try(c, summary.Seen(), nil, manifests)
	}
	return cmp.Or(err, failedIf(len(a.Kept) > 0))
}

func (f *adviseFlags) try(
	c *cobra.Command,
	observations []advice.ObservedImpersonation,
	refused []advice.Neighbour,
	manifests []byte,
) error {
	neighbours, gaps := advice.Neighbours(observations)
	neighbours = append(neighbours, refused...)
	observations = slices.DeleteFunc(observations, func(s advice.ObservedImpersonation) bool { return s.Mode == "" })
	all := len(observations)
	if f.verifyLimit > 0 && all > f.verifyLimit {
		random := rand.New(rand.NewPCG(f.seed, 0))
		random.Shuffle(all, func(i, j int) { observations[i], observations[j] = observations[j], observations[i] })
		observations = observations[:f.verifyLimit]
		random.Shuffle(len(neighbours), func(i, j int) { neighbours[i], neighbours[j] = neighbours[j], neighbours[i] })
		neighbours = neighbours[:min(len(neighbours), 4*f.verifyLimit)]
	}
	var result *verification.Findings
	var err error
	if f.live != nil {
		result, err = f.live.review(observations, neighbours)
	} else {
		o := verification.Options{
			Manifests:  manifests,
			Seen:       observations,
			Neighbours: neighbours,
			Progress:   func(line string) { _, _ = fmt.Fprintln(c.ErrOrStderr(), line) },
		}
		if o.Target, err = localCell(c, f.kubernetes, scenarios.GateOn); err != nil {
			return err
		}
		result, err = verification.Run(c.Context(), o)
	}
	if err != nil {
		return invalid(err)
	}
	err = render(c.OutOrStdout(), "tried advice", struct {
		*verification.Findings
		Sent, All, Neighbours int
		Without               map[string]int
		Reviewed              bool
	}{result, len(observations), all, len(neighbours), gaps, f.live != nil})
	if err != nil {
		return invalid(err)
	}
	return failedIf(len(result.Wrong) > 0)
}

// readPresent returns the roles and bindings of --kubeconfig, or those of --rbac together with those that every cluster
// has. It returns nil without either flag.
func (f *adviseFlags) readPresent(c *cobra.Command) ([]map[string]any, error) {
	switch {
	case f.kubeconfig != "":
		return f.readCluster(c.Context())
	case len(f.rbac) > 0:
		return f.readFiles(c.ErrOrStderr())
	}
	return nil, nil
}

// readCluster connects to the cluster of --kubeconfig, and lists its roles and bindings.
func (f *adviseFlags) readCluster(ctx context.Context) (objects []map[string]any, err error) {
	if f.live, err = newLiveCluster(ctx, f.kubeconfig, f.context); err != nil {
		return nil, err
	}
	if err := f.live.Require(ctx, existing.Advising(f.verify)); err != nil {
		return nil, invalid(err)
	}
	return f.live.rbac()
}

// readFiles returns the roles and bindings in the files and folders of --rbac, with those that every cluster has, and
// ClusterRoles aggregated. It lists on stderr what it left out.
func (f *adviseFlags) readFiles(stderr io.Writer) ([]map[string]any, error) {
	objects, leftOut, err := readManifests(f.rbac)
	if err != nil {
		return nil, fmt.Errorf("--rbac: %w", err)
	}
	for _, kind := range slices.Sorted(maps.Keys(leftOut)) {
		_, _ = fmt.Fprintf(stderr, "left out: %d of kind %s (not RBAC)\n", leftOut[kind], kind)
	}
	if !slices.ContainsFunc(objects, func(o map[string]any) bool { return o["roleRef"] != nil }) {
		return nil, fmt.Errorf(
			"--rbac %s has no bindings (expected manifests, or what kubectl get clusterroles,clusterrolebindings,roles,rolebindings -A -o yaml writes)",
			strings.Join(f.rbac, ","),
		)
	}
	return advice.Aggregated(oracle.WithBuiltInRoles(objects))
}

// readManifests returns the roles and bindings in files and folders, and counts the other objects there by their kind.
func readManifests(paths []string) (objects []map[string]any, leftOut map[string]int, err error) {
	leftOut = map[string]int{}
	for _, path := range paths {
		files, err := findManifests(path)
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			raw, err := filing.Input(file)
			if err != nil {
				return nil, nil, err
			}
			objectsOfFile, others, err := advice.ReadRBAC(file, raw)
			if err != nil {
				return nil, nil, err
			}
			objects = append(objects, objectsOfFile...)
			for kind, n := range others {
				leftOut[kind] += n
			}
		}
	}
	return objects, leftOut, nil
}

// findManifests returns a file, whatever its name is, or the files below a folder that are named like manifests.
func findManifests(path string) (files []string, err error) {
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if file == path || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) {
			files = append(files, file)
		}
		return nil
	})
	return files, err
}

// printHolders prints who may impersonate whom by the present roles and bindings.
func (f *adviseFlags) printHolders(c *cobra.Command, present []map[string]any) error {
	holders, dangling := advice.Holders(present)
	active := slices.DeleteFunc(slices.Clone(holders), advice.Holder.Idle)
	err := printAs(c.OutOrStdout(), f.output, "holders", struct {
		Holders  []advice.Holder   `json:"holders"`
		Shown    []advice.Holder   `json:"-"`
		Dangling []advice.Dangling `json:"dangling,omitempty"`
	}{holders, active, dangling})
	if err != nil {
		return invalid(err)
	}
	if i := slices.IndexFunc(dangling, func(d advice.Dangling) bool { return !d.BuiltIn }); i >= 0 && f.kubeconfig == "" {
		return fmt.Errorf(
			"--rbac %s: %s is bound to %s, which is not in the files: what it gives is not known (expected the file of the role, too)",
			strings.Join(f.rbac, ","),
			dangling[i].Binding,
			dangling[i].Role,
		)
	}
	return nil
}

// review asks the cluster about what was seen and about its neighbours.
func (l *liveCluster) review(observations []advice.ObservedImpersonation, neighbours []advice.Neighbour) (*verification.Findings, error) {
	facts, err := l.Facts(l.ctx)
	if err != nil {
		return nil, err
	}
	model, err := oracle.New(oracle.Config{
		Kubernetes: cmp.Or(facts.Emulated, facts.GitVersion),
		Binary:     facts.GitVersion,
		Gate:       facts.Gate,
		Chain:      []oracle.Authorizer{{Authorize: l.authorize}},
	})
	if err != nil {
		return nil, err
	}
	results, err := verification.Review(l.ctx, model, observations, neighbours)
	results.Version = fmt.Sprintf("%s, gate %s", facts.GitVersion, facts.Gate)
	return results, cmp.Or(l.err, err)
}

func (l *liveCluster) rbac() (objects []map[string]any, err error) {
	for _, resource := range existing.RBAC() {
		raw, err := l.client.RbacV1().RESTClient().Get().Resource(resource).DoRaw(l.ctx)
		if err != nil {
			return nil, invalid(fmt.Errorf("listing %s of the cluster: %w", resource, err))
		}
		objectsOfKind, _, err := advice.ReadRBAC(resource, raw)
		if err != nil {
			return nil, invalid(err)
		}
		objects = append(objects, objectsOfKind...)
	}
	return objects, nil
}

type judgedProfile struct {
	advice.Profile
	Kinds       []advice.JudgedImpersonation `json:"sends"`
	Constrained []scenarios.Grant            `json:"constrained"` // the grants that replace the legacy ones
	Manifests   string                       `json:"-"`

	summary *advice.Summary
}

func judgeProfile(p advice.Profile) (j judgedProfile, err error) {
	j.Profile = p
	if j.summary, j.Kinds, err = p.Summary(); err != nil {
		return j, err
	}
	j.Constrained = j.summary.Advice().Grants
	manifests, err := advice.Manifests(advice.RBAC(j.Constrained))
	j.Manifests = string(manifests)
	return j, err
}

// judgeProfiles judges all profiles there are.
func judgeProfiles() ([]judgedProfile, error) {
	profiles, err := advice.Profiles()
	if err != nil {
		return nil, err
	}
	all := make([]judgedProfile, len(profiles))
	for i, p := range profiles {
		if all[i], err = judgeProfile(p); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// findProfile returns the profile of a name, or an error that names the nearest.
func findProfile(all []judgedProfile, name string) (judgedProfile, error) {
	if i := slices.IndexFunc(all, func(j judgedProfile) bool { return j.Name == name }); i >= 0 {
		return all[i], nil
	}
	names := seq.Map(all, func(j judgedProfile) string { return j.Name })
	hint := "expected one of " + strings.Join(names, ", ")
	if suggestions := nearest(name, names); len(suggestions) > 0 {
		hint = "nearest: " + strings.Join(suggestions, ", ")
	}
	return judgedProfile{}, fmt.Errorf("--profile %q is not known (%s; --profile list has all)", name, hint)
}

// Blocked returns the kinds that no constrained mode serves.
func (j judgedProfile) Blocked() []advice.JudgedImpersonation {
	return slices.DeleteFunc(slices.Clone(j.Kinds), func(k advice.JudgedImpersonation) bool { return k.Mode != "" })
}

// refused returns the impersonations that the constrained grants do not allow, so that they need legacy ones.
func (j judgedProfile) refused() (list []advice.Neighbour) {
	for _, s := range j.summary.Seen() {
		if s.Mode == "" {
			list = append(list, advice.Neighbour{ObservedImpersonation: s, Differs: "kind, which needs legacy grants"})
		}
	}
	return list
}

// adviseOnProfile prints the profile that --profile names, or the list of all, and tries its grants with --verify.
func (f *adviseFlags) adviseOnProfile(c *cobra.Command) error {
	all, err := judgeProfiles()
	if err != nil {
		return err
	}
	if f.profile == "list" {
		return f.listProfiles(c.OutOrStdout(), all)
	}
	j, err := findProfile(all, f.profile)
	if err != nil {
		return err
	}
	if err := printAs(c.OutOrStdout(), f.output, "profile", j); err != nil {
		return invalid(err)
	}
	if f.verify {
		err = f.try(c, j.summary.Seen(), j.refused(), []byte(j.Manifests))
	}
	return cmp.Or(err, failedIf(len(j.Blocked()) > 0))
}

func (f *adviseFlags) listProfiles(out io.Writer, all []judgedProfile) error {
	if f.output != "text" {
		return printAs(out, f.output, "", all)
	}
	return renderTable(out, "profiles", all, 0)
}
