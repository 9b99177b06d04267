package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/profile"
	loadrun "github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/shard"
	"github.com/authzconf/authzconf/loadgen/storm"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/load"
)

type loadFlags struct {
	profile, kubernetes, reportDir string
	provider, nodeImage, engine    string
	image, nodeObjects             string
	existing                       existingFlags
	apiServers                     []string
	adjust                         profile.Adjust
	shards                         int
	seed                           int64
	dryRun, list                   bool
}

func newLoad() *cobra.Command {
	var f loadFlags
	c := plainCommand("load", f.run)
	f.add(c)
	c.AddCommand(newLoadPart("shard", shard.Serve), newLoadPart("recorder", storm.ServeRecorder), newLoadVerify(), newLoadCost(), newLoadResults(), newLoadExport())
	return c
}

func (f *loadFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.profile, "profile", "", "a file, or a built-in profile (--list-profiles says what they are): "+strings.Join(profile.Names(), ", "))
	fl.StringSliceVar(&f.adjust.Variants, "variants", nil, "only comparisons between these variants (the A/A pair stays)")
	fl.IntVar(&f.adjust.Pairs, "pairs", 0, "pairs of blocks of each comparison (default: the profile's)")
	fl.IntVar(&f.adjust.Starts, "starts", 0, "starts of the servers that the pairs are spread over (default: the profile's, and no more than pairs)")
	fl.BoolVar(&f.adjust.Counts, "counts", false, "only count: no claim about latency, so no A/A pair, no margins, and one start")
	fl.IntVar(&f.adjust.Nodes, "nodes", 0, "nodes, with an agent of each DaemonSet (default: the profile's)")
	fl.IntVar(&f.adjust.DaemonSets, "daemonsets", 0, "DaemonSets (default: the profile's)")
	fl.StringVar(&f.adjust.ServiceAccounts, "service-accounts", "", "who has one: shared (one for each DaemonSet) or perAgent (default: the profile's)")
	fl.DurationVar(&f.adjust.Every, "every", 0, "how often each agent asks (default: the profile's)")
	fl.DurationVar(&f.adjust.Block, "duration", 0, "length of a block, a multiple of 10s (default: the profile's)")
	fl.DurationVar(&f.adjust.WebhookDelay, "webhook-delay", 0, "what the authorizer adds to each answer (default: the profile's)")
	fl.StringVar(&f.adjust.Authorizer, "authorizer", profile.Webhook, "who decides beside RBAC: webhook (nothing is remembered), webhook-cached (as long as by default) or rbac (nobody: the API server counts)")
	fl.IntVar(&f.adjust.Bindings, "rbac-bindings", 0, "how many more ClusterRoleBindings there are")
	fl.IntVar(&f.shards, "shards", 1, "shards that the agents are spread over; the schedule is the same for any number")
	fl.StringVar(&f.engine, "engine", storm.Processes, "what shards are: "+storm.Processes+", or "+storm.Pods+" (pods of an Indexed Job, with --provider kind or existing)")
	fl.StringVar(&f.provider, "provider", server.Local, "where the servers come from: local (child processes that share one etcd), kind (a cluster each) or existing (the cluster of --kubeconfig, which alone counts: --authorizer rbac and --counts)")
	f.existing.add(fl)
	fl.StringSliceVar(&f.apiServers, "api-servers", nil, "with --provider existing, the address of each API server (https://HOST:PORT) if there are several: the metrics of all count")
	fl.StringVar(&f.image, "image", "", "with --provider existing, an image of authzconf that its nodes can pull: shards are pods of it (without: processes of this machine)")
	fl.StringVar(&f.nodeObjects, "node-objects", bareNodes, "what the agents' nodes are: "+bareNodes+" (objects without a status), or with --provider existing "+kwokNodes+" (kept Ready by the kwok that is in the cluster)")
	fl.StringVar(&f.nodeImage, "kind-node-image", "", "node image of kind (default kindest/node of the version)")
	fl.StringVar(&f.kubernetes, "kubernetes", matrix.Newest(), "version to run, of "+matrix.Known())
	programFlags(fl)
	seedFlag(c, &f.seed, "the schedule and the order of blocks (default: random, printed)")
	fl.StringVar(&f.reportDir, "report-dir", "", "folder for run.json and the report")
	fl.BoolVar(&f.list, "list-profiles", false, "say what the built-in profiles are, and stop")
	fl.BoolVar(&f.dryRun, "dry-run", false, "print what would run and what the oracle predicts, and stop")
}

// newLoadPart is how a run starts its shards and its recorder, which are told on stdin what to do and answer on stdout.
func newLoadPart(name string, serve func(ctx context.Context, in io.Reader, out io.Writer) error) *cobra.Command {
	c := plainCommand(name, func(c *cobra.Command) error { return invalid(serve(c.Context(), c.InOrStdin(), c.OutOrStdout())) })
	c.Short, c.Hidden = "Be the "+name+" of a storm, by stdin and stdout", true
	return c
}

// options reads everything that can be wrong before anything is started.
func (f *loadFlags) options(c *cobra.Command) (o storm.Options, err error) {
	if f.profile == "" {
		return o, fmt.Errorf("--profile is missing: name a file, or one of %s", strings.Join(profile.Names(), ", "))
	}
	p, text, err := profile.Load(f.profile)
	if err != nil {
		return o, err
	}
	if p, err = f.adjusted(c, p); err != nil {
		return o, err
	}
	self, err := os.Executable()
	if err != nil {
		return o, err
	}
	o = storm.Options{
		Profile: p, ProfileYAML: text, Binaries: binaries(c), Seed: f.seed,
		Provider: f.provider, NodeImage: f.nodeImage, Engine: f.engine, Image: f.image, Kwok: f.nodeObjects == kwokNodes, APIServers: f.apiServers,
		Shards: f.shards, Command: []string{self, "load", "shard"}, RecorderCommand: []string{self, "load", "recorder"},
		Tool: suiteVersion(), Called: called,
	}
	if f.image != "" && !c.Flags().Changed("engine") {
		o.Engine = storm.Pods
	}
	if !o.Kwok && f.nodeObjects != bareNodes {
		return o, fmt.Errorf("--node-objects %q: expected %s or %s", f.nodeObjects, bareNodes, kwokNodes)
	}
	if !f.foreign() {
		o.Release, err = local.ParseRelease(f.kubernetes)
		return o, cmp.Or(err, o.Check())
	}
	cells, err := f.existing.cells(c, existing.Needs("list", "", "namespaces", "nodes", "pods")...)
	if err != nil {
		return o, err
	}
	o.Existing, o.Release = cells[0], cells[0].Release
	return o, o.Check()
}

func (f *loadFlags) foreign() bool { return matrix.Matrix{Provider: f.provider}.Capabilities().Foreign }

const bareNodes, kwokNodes = "bare", "kwok"

func (f *loadFlags) adjusted(c *cobra.Command, p *profile.Profile) (*profile.Profile, error) {
	a, given := f.adjust, c.Flags().Changed
	if f.foreign() {
		a.Counts = true // there is no second server
		if !given("authorizer") {
			a.Authorizer = profile.RBAC
			given = func(flag string) bool { return flag == "authorizer" || c.Flags().Changed(flag) }
		}
	}
	return p.Adjusted(a, given)
}

func (f *loadFlags) run(c *cobra.Command) error {
	if f.list {
		lines, err := profile.Describe()
		if err == nil {
			_, err = fmt.Fprintln(c.OutOrStdout(), strings.Join(lines, "\n"))
		}
		return err
	}
	o, err := f.options(c)
	if err != nil {
		return err
	}
	if f.dryRun {
		return storm.Describe(c.OutOrStdout(), o)
	}
	if err := writable(&load.Folder, f.reportDir); err != nil {
		return err
	}
	show := &loadProgress{display: newDisplay(c.ErrOrStderr())}
	o.Said, o.Progress, o.Created = show.line, show.progress, show.created
	out, err := storm.Execute(c.Context(), o)
	show.end()
	if err != nil {
		return invalid(err)
	}
	return f.finish(c, o.Profile, out)
}

// finish judges what was measured, prints it even if it cannot be written, and turns the judgement into the exit code.
func (f *loadFlags) finish(c *cobra.Command, p *profile.Profile, measured *loadrun.Run) error {
	out := c.OutOrStdout()
	result := load.Judge(*measured, storm.Thresholds(p))
	if err := cmp.Or(load.Summarize(out, measured, &result), render(out, "load outcome", result)); err != nil {
		return err
	}
	if f.reportDir != "" {
		if err := load.Write(f.reportDir, *measured, result); err != nil {
			return invalid(err)
		}
		_, _ = fmt.Fprintf(out, "report: %s\ncheck it: authzconf load verify %s\n", filepath.Join(f.reportDir, "report.html"), f.reportDir)
	}
	return exitWith(result.Outcome.ExitCode())
}

// printable leaves out what would steer a terminal, or end the comment that a name stands in: names come from files.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return '�'
		}
		return r
	}, s)
}

func newLoadVerify() *cobra.Command {
	return commandWith("verify FOLDER", func(c *cobra.Command, args []string) error { return verifyLoad(c, args[0], &verifyFlags{}) })
}

func verifyLoad(c *cobra.Command, path string, flags *verifyFlags) error {
	if len(flags.keys) > 0 {
		return errors.New("--key: a report of this kind is not signed")
	}
	result, differences, unjudged, err := load.Verify(path, suiteVersion(), declaredBy)
	if err != nil {
		return err
	}
	if len(differences) > 0 {
		return differs(c, seq.Map(differences, printable), "the report does not follow from its run")
	}
	if len(unjudged) > 0 {
		return invalid(fmt.Errorf("the authzconf that made it has to verify it: %s", printable(strings.Join(unjudged, ", "))))
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "verified: judged again, the outcome is %s\n", result.Outcome)
	return err
}

// declaredBy are the thresholds and comparisons that the text of a run's profile has, with the flags of its command. The
// text of a built-in profile has to be ours, and the servers of the version that was asked for.
func declaredBy(r *loadrun.Run) (t load.Thresholds, compared []string, err error) {
	var f loadFlags
	c := &cobra.Command{FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}}
	f.add(c)
	if err := c.ParseFlags(r.Command[slices.Index(r.Command, "load")+1:]); err != nil {
		return t, nil, err
	}
	for _, name := range []string{f.profile, r.Profile} { // what was asked for, and what the report calls it
		if !slices.Contains(profile.Names(), name) {
			continue
		}
		if _, text, err := profile.Load(name); err != nil || string(text) != r.ProfileYAML {
			return t, nil, errors.Join(err, fmt.Errorf("the text of the built-in profile %s is not that of this authzconf: one of your own needs another name", name))
		}
	}
	p, err := profile.Parse(r.Profile+".yaml", []byte(r.ProfileYAML))
	if err != nil {
		return t, nil, err
	}
	if p, err = f.adjusted(c, p); err != nil {
		return t, nil, err
	}
	o := storm.Options{Profile: p, ProfileYAML: []byte(r.ProfileYAML), Seed: r.Seed, Provider: f.provider, Engine: f.engine, Shards: f.shards, Tool: r.Tool, Called: r.Command}
	if c.Flags().Changed("seed") {
		o.Seed = f.seed
	}
	if f.image != "" && !c.Flags().Changed("engine") {
		o.Engine = storm.Pods
	}
	if err := o.Hold(r); err != nil {
		return t, nil, err
	}
	release, err := local.ParseRelease(f.kubernetes)
	for _, s := range r.Servers {
		wanted := strings.HasPrefix(s.GitVersion, "v"+release.Minor+".")
		if r.Tool == suiteVersion() && len(s.Mismatches) == 0 && !f.foreign() { // which has its patch pinned
			wanted = s.GitVersion == "v"+release.Version
		}
		if err == nil && !f.foreign() && !wanted {
			err = fmt.Errorf("%s is Kubernetes %s, and its command asks for %s", s.Name, s.GitVersion, release.Version)
		}
	}
	return storm.Thresholds(p), seq.Map(p.Comparisons, func(c profile.Comparison) string { return c.Name }), err
}

func newLoadCost() *cobra.Command {
	var reportDir string
	c := commandWith("cost RUN...", func(c *cobra.Command, args []string) error {
		var runs []load.Saved
		for _, path := range args {
			s, err := load.LoadSaved(path)
			if err != nil {
				return err
			}
			runs = append(runs, s)
		}
		cost := load.NewCost(runs...)
		if reportDir == "" {
			text, err := cost.Markdown()
			if err == nil {
				_, err = c.OutOrStdout().Write(text)
			}
			return err
		}
		if err := cost.Write(reportDir); err != nil {
			return err
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "report: %s\n", filepath.Join(reportDir, "README.md"))
		return err
	})
	c.Flags().StringVar(&reportDir, "report-dir", "", "folder for README.md and the curves")
	return c
}

func newLoadResults() *cobra.Command {
	var reportDir string
	c := commandWith("results [RUNS]", func(c *cobra.Command, args []string) error {
		if reportDir == "" {
			return errors.New("--report-dir is missing: name the folder for the pages")
		}
		if err := load.Results(strings.Join(args, ""), reportDir); err != nil {
			return err
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "report: %s\n", filepath.Join(reportDir, "README.md"))
		return err
	})
	c.Flags().StringVar(&reportDir, "report-dir", "", "folder for README.md and the parts")
	return c
}

func newLoadExport() *cobra.Command {
	var address, tokenFile string
	c := commandWith("export FOLDER --remote-write URL", func(c *cobra.Command, args []string) error {
		if address == "" {
			return errors.New("--remote-write is missing: name where to, such as http://localhost:9090/api/v1/write")
		}
		to, err := load.ParseReceiver(address)
		if err != nil {
			return fmt.Errorf("--remote-write: %w", err)
		}
		var token []byte
		if tokenFile != "" {
			if token, err = filing.Input(tokenFile); err != nil {
				return fmt.Errorf("--bearer-token-file: %w", err)
			}
		}
		r, err := load.Load(args[0])
		if err != nil {
			return err
		}
		streams, err := load.Streams(&r)
		if err != nil {
			return err
		}
		if err := (&load.Receiver{URL: to, Token: strings.TrimSpace(string(token))}).Push(c.Context(), streams); err != nil {
			return invalid(err)
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "sent: %d series of %s to %s\n", len(streams), reports.Plural(len(r.Blocks), "block"), to.Redacted())
		return err
	})
	c.Flags().StringVar(&address, "remote-write", "", "URL of the receiver; a user and password may be in it")
	c.Flags().StringVar(&tokenFile, "bearer-token-file", "", "file with a token for the receiver")
	return c
}
