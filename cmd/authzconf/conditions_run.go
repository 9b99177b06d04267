package main

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/gate"
	"github.com/authzconf/authzconf/drafts/conditional/library"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// ourReference is the subject of reports that are about nothing but the reference.
const ourReference = "the reference authorizer (by our reference only)"

// conditionsRunFlags say what vectors are played against: the reference unless it is something else.
type conditionsRunFlags struct {
	filedFlags
	library, apiServer                 bool
	kubeconfig, hook, wire, kubernetes string
	seed                               int64
}

func newConditionsRun(flags *conditionsRunFlags) *cobra.Command {
	c := commandWith("run FOLDER", flags.run)
	fl := c.Flags()
	fl.BoolVar(&flags.library, "library", false, "play them against the library of k8s.io/apiserver")
	fl.BoolVar(&flags.apiServer, "api-server", false, "play them against a kube-apiserver with the gate "+gate.Gate+": the program of TEST_ASSET_KUBE_APISERVER, or of --kubernetes")
	fl.StringVar(&flags.kubernetes, "kubernetes", matrix.Newest(), "version of --api-server, of "+matrix.Known())
	programFlags(fl)
	fl.StringVar(&flags.kubeconfig, "authorizer-kubeconfig", "", "play them against the webhook of this kubeconfig, as certify --conditional has it")
	fl.StringVar(&flags.hook, "policy-hook", "", "a program that loads the policies of the vectors into it: it gets them as JSON on its standard input")
	fl.StringVar(&flags.wire, "wire", "", "revision of KEP-5681's wire: seed or merged (default: both; of a webhook the one that it speaks, of --api-server merged)")
	seedFlag(c, &flags.seed, "the names of groups and policies (default: random, printed)")
	flags.register(fl, "conditions.yaml, report.html, junit.xml, summary.md and evidence/")
	return c
}

func (f *conditionsRunFlags) run(c *cobra.Command, args []string) error {
	texts := map[string]string{} // by the names of the files
	prefix := prefixOf(args[0])
	all, err := scenarios.LoadAll(os.DirFS(args[0]), vectors.Suffix, func(name string, raw []byte) ([]*vectors.Vector, error) {
		texts[prefix+name] = string(raw)
		out, err := vectors.Parse(name, raw)
		for _, v := range out {
			v.ID = prefix + v.ID
		}
		return out, err
	})
	if err != nil {
		err = fmt.Errorf("vectors in %s:\n%w", args[0], err)
	} else if len(all) == 0 {
		err = fmt.Errorf("%s: there are no vectors in it (expected files whose names end in %s)", args[0], vectors.Suffix)
	}
	if err == nil {
		err = f.ready(&certification.PlayedFolder)
	}
	if err != nil {
		return err
	}
	pieces := &reports.Pieces{}
	if _, err := reports.Keep(pieces, "vectors", &texts); err != nil {
		return invalid(err)
	}
	if err := f.ask(c, args[0], all, pieces); err != nil {
		return err
	}
	r, err := f.again(c, &certification.Played{Seed: f.seed}, pieces, nil)
	switch {
	case err != nil:
		return invalid(err)
	case r.Totals[verdicts.NotSupported] == len(r.Results):
		return fmt.Errorf("%s: none of %s says anything about %s (expected API-server vectors for --library and --api-server, else webhook vectors)", args[0], reports.Plural(len(all), "vector"), r.Subject)
	}
	if err := renderTable(c.OutOrStdout(), "played", r, 0); err != nil {
		return err
	}
	if err := f.file(&certification.PlayedFolder, r, pieces); err != nil {
		return err
	}
	return exitWith(map[verdicts.Verdict]int{verdicts.Failed: exitFailed, verdicts.Invalid: exitInvalid}[r.Outcome])
}

func prefixOf(dir string) string {
	full, _ := filepath.Abs(dir) // which fails if there is no working directory
	if _, below, is := strings.Cut(filepath.ToSlash(full)+"/", "/kep-5681/"); is {
		return "kep-5681/" + below
	}
	return ""
}

func (f *conditionsRunFlags) ask(c *cobra.Command, dir string, all []*vectors.Vector, into *reports.Pieces) error {
	if f.apiServer {
		return f.playGate(c, all, into)
	}
	plan, err := certification.NewPlan(all, f.seed)
	if err != nil || f.library || plan.Len(certification.Phases)+plan.Len(certification.Atomic) == 0 {
		return err
	}
	o, ask, wires := certification.Options{Plan: plan}, certifyReference, wire.Revisions()
	if f.kubeconfig != "" {
		o.Load, ask, wires = hookLoader(c, f.hook), certification.Certify, []*wire.Revision{nil} // which has it asked
		if o.Webhooks, err = webhooks("authorizer-kubeconfig", f.kubeconfig, reference.ConditionsContext, certify.Timeout); err != nil {
			return err
		}
	}
	if f.wire != "" {
		if wires[0], err = revisionOf(f.wire); err != nil {
			return err
		}
		wires = wires[:1]
	}
	for _, v := range all {
		if f.kubeconfig != "" || v.Webhook == nil { // a webhook's CEL may have functions of its own
			continue
		}
		if _, err := reference.NewSnapshot(v.Webhook.Policies); err != nil {
			name := filepath.Join(dir, v.File)
			raw, _ := os.ReadFile(name) // as it was read before
			doc, _ := scenarios.Decode(name, raw, "a test vector", &vectors.Vector{})
			at, why, _ := strings.Cut(err.Error(), ": ")
			return fmt.Errorf("%s: %s (expected a policy as the reference authorizer takes it)", doc.At("$.webhook"+at[1:]), why)
		}
	}
	var exchanges []certification.Exchange
	for _, o.Wire = range wires {
		run, err := ask(c.Context(), o)
		if err != nil {
			return invalid(err)
		}
		exchanges = append(exchanges, run.Answers...)
	}
	_, err = reports.Keep(into, "exchanges", &exchanges)
	return invalid(err)
}

func (f *conditionsRunFlags) playGate(c *cobra.Command, all []*vectors.Vector, into *reports.Pieces) error {
	release, err := local.ParseRelease(f.kubernetes)
	if err != nil {
		return fmt.Errorf("--kubernetes: %w", err)
	}
	w, err := revisionOf(cmp.Or(f.wire, wire.Merged.Name))
	if err != nil {
		return err
	}
	play, err := gate.Run(c.Context(), all, gate.Options{Release: release, Binaries: binaries(c), Wire: w})
	if err == nil {
		_, err = reports.Keep(into, "api-server", play)
	}
	return invalid(err)
}

func certifyReference(ctx context.Context, o certification.Options) (*certify.Run[certification.Exchange], error) {
	a := reference.New(&reference.Snapshot{})
	a.Wire = o.Wire
	o.Load = func(_ context.Context, all []vectors.Policy) error {
		s, err := reference.NewSnapshot(all)
		if err == nil {
			a.Use(s)
		}
		return err
	}
	return certification.CertifyHandler(ctx, reference.Handler(o.Wire, a), o)
}

// holdVectors compares the vectors of a report with those of a folder, or, where no folder is given, those that are named as
// authzconf's own with these: who edits what is expected has whatever he likes.
func holdVectors(texts map[string]string, dir string) error {
	files, of, prefix, missing := fs.FS(scenarios.FS), "authzconf (--scenarios FOLDER says which to judge by)", "", 0
	if dir != "" {
		files, of, prefix = os.DirFS(dir), dir, prefixOf(dir)
	}
	var changed []string
	all, err := scenarios.LoadAll(files, vectors.Suffix, func(name string, raw []byte) ([]string, error) {
		text, there := texts[prefix+name]
		if !there {
			missing++
			return []string{name}, nil
		}
		is, err := vectors.Parse(name, raw)
		if was, wrong := vectors.Parse(name, []byte(text)); wrong != nil || !reflect.DeepEqual(was, is) {
			changed = append(changed, prefix+name)
		}
		return []string{name}, err
	})
	switch {
	case err != nil:
	case len(changed) > 0:
		err = fmt.Errorf("%s of vectors, the first %s, say something else than in %s", reports.Plural(len(changed), "file"), changed[0], of)
	case dir != "" && (missing > 0 || len(all) != len(texts)):
		err = fmt.Errorf("the report is about %s of vectors, and %s has %d, of which the report lacks %d", reports.Plural(len(texts), "file"), dir, len(all), missing)
	}
	return err
}

// ownVectors says how many of authzconf's own vectors there are among those of a report, so that nobody takes a few for all.
func ownVectors(texts map[string]string) string {
	own := 0
	all, err := scenarios.LoadAll(scenarios.FS, vectors.Suffix, func(name string, _ []byte) ([]string, error) {
		if _, there := texts[name]; there {
			own++
		}
		return []string{name}, nil
	})
	if err != nil || own == 0 {
		return "of somebody's own"
	}
	return fmt.Sprintf("of %d of authzconf's %d files", own, len(all))
}

func (f *conditionsRunFlags) again(c *cobra.Command, was *certification.Played, p *reports.Pieces, verify *verifyFlags) (*certification.Played, error) {
	reseed(c, &f.seed, was.Seed)
	texts, err := reports.Take[map[string]string](p, "vectors")
	if err == nil && verify != nil {
		err = holdVectors(*texts, verify.dir)
	}
	if err != nil {
		return nil, err
	}
	var all []*vectors.Vector
	for _, name := range slices.Sorted(maps.Keys(*texts)) {
		parsed, err := vectors.Parse(name, []byte((*texts)[name]))
		if err != nil {
			return nil, err
		}
		all = append(all, parsed...)
	}
	r, exchanges := &certification.Played{Seed: f.seed}, &[]certification.Exchange{}
	if p.Has("exchanges") {
		exchanges, err = reports.Take[[]certification.Exchange](p, "exchanges")
	}
	if f.apiServer && err == nil {
		play, err := reports.Take[gate.Play](p, "api-server")
		if err != nil {
			return nil, err
		}
		r := gate.Judge(all, play)
		r.Seed, r.Files = f.seed, ownVectors(*texts)
		return r, nil
	}
	if err == nil && !f.library {
		r, err = certification.Play(all, f.seed, *exchanges)
	}
	for _, v := range all {
		if one := (certification.VectorResult{Vector: v}); f.library && err == nil {
			one.Verdict, one.Why, err = library.Play(context.Background(), v)
			r.Add(one)
		}
	}
	if r.Subject = ourReference; f.library {
		r.Subject = library.Library()
	} else if f.kubeconfig != "" {
		r.Subject = "the webhook of " + f.kubeconfig
	}
	r.Files = ownVectors(*texts)
	return r, err
}
