package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recordAnew has the runs of testdata/recorded made anew, each on a control plane of its own: it is needed when the cases
// that are generated, or the programs of a version, are others.
var recordAnew = flag.Bool("record", false, "make testdata/recorded anew")

// recordedRuns are small runs of each product, by their folders, with the files that have their reports.
var recordedRuns = map[string]struct {
	marker string
	args   string
}{
	"explore": {"explore.yaml", "explore --cases 14 --seed 4 --kubernetes 1.37"},
}

func TestRecorded(t *testing.T) {
	for name, of := range recordedRuns {
		if *recordAnew && !strings.HasPrefix(of.args, "conditions") {
			dir := filepath.Join("testdata", "recorded", name)
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			folder{t: t}.run(exitPassed, append(strings.Fields(of.args), "--report-dir", dir)...)
		}
		f := recordedFolder(t, name)
		if out := f.run(exitPassed, "verify", f.dir); !strings.Contains(out, "the outcome is passed\nsignature: none") {
			t.Errorf("%s: %s (go test ./cmd/authzconf -run TestRecorded -record makes the runs anew)", name, out)
		}
		// Signed, by one key and not by another.
		keys := t.TempDir()
		mine, other := filepath.Join(keys, "mine"), filepath.Join(keys, "other")
		f.run(exitPassed, "certify", "keygen", mine)
		f.run(exitPassed, "certify", "keygen", other)
		flags := filedFlags{reportDir: f.dir, signKey: mine}
		if err := flags.readKey(); err != nil {
			t.Fatal(err)
		}
		if err := flags.sign(of.marker, "passed"); err != nil {
			t.Fatal(err)
		}
		f.run(exitPassed, "verify", f.dir, "--key", mine+".pub")
		f.run(exitFailed, "verify", f.dir, "--key", other+".pub")
		f.edit(of.marker, func(r map[string]any) { r["suiteVersion"] = "v9" })
		f.run(exitFailed, "verify", f.dir)
	}
}

// shorten leaves out the first of a list.
func shorten(o map[string]any, list string) { o[list] = o[list].([]any)[1:] }

// cheats are ways to make a report say what was not seen, whose digests fit, with a part of what verify has to say.
var cheats = map[string]map[string]struct {
	do   func(folder)
	want string
}{
	"explore": {
		"sent earlier": {func(f folder) {
			f.edit(batchFile, func(e map[string]any) { object(e, "cases", 1, "steps", 0)["sent"] = "2026-01-01T00:00:00Z" })
		}, "of the request"},
		"answered later": {func(f folder) {
			f.edit(batchFile, func(e map[string]any) { object(e, "cases", 1, "steps", 0)["answered"] = "2029-01-01T00:00:00Z" })
		}, "of the request"},
		"not sent behind the one before": {func(f folder) {
			f.edit(batchFile, func(e map[string]any) {
				first, second := object(e, "cases", 1, "steps", 0), object(e, "cases", 1, "steps", 1)
				second["sent"] = first["sent"]
			})
		}, "it was not sent behind the one before"},
		"decided otherwise": {func(f folder) {
			f.edit(batchFile, func(e map[string]any) {
				for i := range at(e, "cases").([]any) {
					for _, r := range at(e, "cases", i, "steps", 0, "reviews").([]any) {
						if r := r.(map[string]any); r["decision"] == "noOpinion" {
							r["decision"] = "allow"
						}
					}
				}
			})
		}, "was decided"},
		"decided by nobody": {func(f folder) {
			f.edit(batchFile, func(e map[string]any) { delete(object(e, "cases", 1, "steps", 0, "reviews", 0), "decision") })
		}, "was decided"},
		"evidence removed":   {func(f folder) { f.put(batchFile, nil) }, "asks for this evidence, and there is none"},
		"evidence of others": {func(f folder) { f.put("evidence/more.json.gz", []byte("x")) }, "asks for nothing that this would be evidence of"},
		"cases swapped":      {func(f folder) { f.edit(batchFile, func(e map[string]any) { swap(at(e, "cases"), 2, 3) }) }, "is not that of this case: "},
		"what was seen swapped": {func(f folder) {
			f.edit(batchFile, func(e map[string]any) {
				a, b := object(e, "cases", 2), object(e, "cases", 3)
				a["steps"], b["steps"] = b["steps"], a["steps"]
			})
		}, "was not as predicted, and there is no evidence of it run alone"},
		"seen twice": {func(f folder) {
			f.edit(batchFile, func(e map[string]any) { e["alone"] = []any{at(e, "cases", 0)} })
		}, "run alone, and no case was to be"},
		"shown less": {func(f folder) {
			f.edit(batchFile, func(e map[string]any) { object(e, "cases", 0)["capabilities"] = []any{"Reviews"} })
		}, "is not that of this case: capabilities"},
		"not counted":    {func(f folder) { f.edit(batchFile, func(e map[string]any) { e["metrics"] = nil }) }, "has metrics: false"},
		"a stray review": {func(f folder) { f.edit(batchFile, func(e map[string]any) { e["arrived"] = 1e6 }) }, "was not as predicted"},
		"a header dropped": {func(f folder) {
			f.edit(batchFile, func(e map[string]any) {
				if !drop(e, "Impersonate-Group") {
					f.t.Error("no case has a group")
				}
			})
		}, "was not as predicted"},
		"an answer edited": {func(f folder) {
			f.edit(batchFile, func(e map[string]any) { object(e, "cases", 0, "steps", 0, "response")["code"] = 418 })
		}, "was not as predicted"},
		"a server edited": {func(f folder) {
			f.edit("evidence/1.37-gate-on/lane-0.json.gz", func(e map[string]any) { object(e, "target", "witness")["gateMetric"] = "off" })
		}, "gate ConstrainedImpersonation (metric)"},
		"a count edited":    {func(f folder) { f.edit(f.marker, func(r map[string]any) { object(r, "cells", 0)["cases"] = 15 }) }, "cells[0].cases: the report says 15"},
		"the outcome":       {func(f folder) { f.edit(f.marker, func(r map[string]any) { r["outcome"] = "failed" }) }, "outcome: the report says"},
		"fewer cases asked": {command("14", "13"), "has evidence of 14 cases, the command line asks for 13"},
		"another seed":      {command("4", "5"), "is not that of this case"},
		"another version":   {command("1.37", "1.36"), "there is none"},
		"another command":   {command("explore", "deputy"), "is not one of authzconf explore"},
	},
}

const (
	batchFile = "evidence/1.37-gate-on/lane-0-0000.json.gz"
)

func (f folder) read(name string) []byte {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(f.dir, filepath.FromSlash(name)))
	if err != nil {
		f.t.Fatal(err)
	}
	return data
}

func TestRecordedIsNotCheated(t *testing.T) {
	for name, ways := range cheats {
		for way, c := range ways {
			t.Run(name+"/"+way, func(t *testing.T) {
				f := recordedFolder(t, name)
				c.do(f)
				if out := f.run(exitFailed, "verify", f.dir); !strings.Contains(out, c.want) || strings.Contains(out, "verified") {
					t.Errorf("printed %s, without %q", out, c.want)
				}
			})
		}
	}
	f := recordedFolder(t, "explore")
	file := filepath.Join(f.dir, filepath.FromSlash(batchFile))
	if err := os.WriteFile(file, append(f.read(batchFile), 0), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := f.run(exitFailed, "verify", f.dir); !strings.Contains(out, batchFile+": was changed") {
		t.Errorf("printed %s", out)
	}
}
