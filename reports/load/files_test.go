package load

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/net/html"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

var update = flag.Bool("update", false, "write the golden files anew")

// smallRun is enough for every part of a report.
func smallRun() run.Run {
	s := simulation{seed: 4, pairs: 10, aaPairs: 10, requests: 400, noise: 0.02, agents: 10}
	return s.run()
}

func markdownText(t *testing.T, r *run.Run, result *Result) string {
	t.Helper()
	text, err := Markdown(r, result)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func smallThresholds() Thresholds {
	t := allOf()
	t.MinPairs = 10
	return t
}

func TestGolden(t *testing.T) {
	r := smallRun()
	result := Judge(r, smallThresholds())
	files, err := render(r, result)
	if err != nil {
		t.Fatal(err)
	}
	var console bytes.Buffer
	if err := Summarize(&console, &r, &result); err != nil {
		t.Fatal(err)
	}
	files["console.txt"] = console.Bytes()
	for _, name := range []string{reportFile, summaryFile, perfDataFile, "console.txt"} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, files[name], 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(files[name])); diff != "" {
			t.Errorf("%s (go test ./reports/load -update): %s", path, diff)
		}
	}
}

func TestWriteLoadVerify(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "report")
	r := smallRun()
	result := Judge(r, smallThresholds())
	for range 2 { // An earlier report is replaced.
		if err := Write(dir, r, result); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(fileNames) {
		t.Errorf("%v, %v", entries, err)
	}
	back, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := filing.EncodeJSON(r)
	b, _ := filing.EncodeJSON(back)
	if !bytes.Equal(a, b) {
		t.Error("the run is not the same after being written and read")
	}
	again, differences, _, err := Verify(dir, r.Tool, nil)
	if err != nil || len(differences) > 0 || again.Outcome != result.Outcome {
		t.Fatalf("%s, %q, %v", again.Outcome, differences, err)
	}
	asked := func(*run.Run) (Thresholds, []string, error) {
		return smallThresholds(), []string{r.Blocks[0].Comparison, "left out"}, nil
	}
	if _, differences, _, _ := Verify(dir, r.Tool, asked); again.Outcome != Passed || len(differences) != 1 || !strings.Contains(differences[0], "no block of the comparison left out") {
		t.Errorf("a comparison is left out of a run that %s: %q", again.Outcome, differences)
	}
	for name, change := range map[string][2]string{
		reportFile:  {`"estimate": `, `"estimate": 1`},
		summaryFile: {"# Load: ", "# Load: not "},
		runFile:     {`"late": 0`, `"late": 100`},
	} {
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(data), change[0], change[1], 1)
		if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, differences, _, err := Verify(dir, r.Tool, nil); err != nil || len(differences) == 0 {
			t.Errorf("%s was changed: %q, %v", name, differences, err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Another version may render other pages; the judgement has to be the same.
	if err := os.Remove(filepath.Join(dir, htmlFile)); err != nil {
		t.Fatal(err)
	}
	if _, differences, _, err := Verify(dir, "another", nil); err != nil || len(differences) != 1 {
		t.Errorf("a page is missing: %q, %v", differences, err)
	}
	if err := os.WriteFile(filepath.Join(dir, htmlFile), []byte("another page"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, differences, unjudged, err := Verify(dir, "another", nil); err != nil || len(differences) != 0 || len(unjudged) != 1 {
		t.Errorf("%q, %q, %v", differences, unjudged, err)
	}
	if _, differences, _, err := Verify(dir, r.Tool, nil); err != nil || len(differences) != 1 {
		t.Errorf("%q, %v", differences, err)
	}
}

func TestWriteRefusesForeignFolders(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r := smallRun()
	if err := Write(dir, r, Judge(r, smallThresholds())); err == nil || !strings.Contains(err.Error(), "holds no earlier load report") {
		t.Errorf("%v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%v was written to", entries)
	}
	file := filepath.Join(dir, "thesis.txt")
	if err := Folder.CheckWritable(file); err == nil {
		t.Error("a file can be written to as a folder")
	}
}

func TestLoadIsStrict(t *testing.T) {
	data, err := filing.EncodeJSON(smallRun())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, text, why string }{
		{"no JSON", "apiVersion: v1", "is not JSON that authzconf wrote"},
		{"empty", "", "is not JSON that authzconf wrote"},
		{"cut short", string(data[:len(data)/2]), "unexpected end"},
		{"another kind", `{"apiVersion":"authzconf.dev/v1alpha1","kind":"LoadReport"}`, `is a "LoadReport"`},
		{"another version", `{"apiVersion":"authzconf.dev/v9","kind":"LoadRun"}`, `of "authzconf.dev/v9"`},
		{"an unknown field", strings.Replace(string(data), `"seed"`, `"speed"`, 1), `unknown field "speed"`},
		{"a field of another case", strings.Replace(string(data), `"seed"`, `"Seed"`, 1), `unknown field "Seed"`},
		{"a field twice", strings.Replace(string(data), `"seed"`, `"agents": 1, "seed"`, 1), `duplicate field "agents"`},
		{"a wrong type", strings.Replace(string(data), `"pairs": 10`, `"pairs": "four"`, 1), "cannot unmarshal"},
		{"a wrong duration", strings.Replace(string(data), `"length": "10s"`, `"length": "ten"`, 1), "invalid duration"},
		{"another histogram", strings.Replace(string(data), "log-linear-7-42", "hdr", 1), `histogram layout "hdr"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), runFile)
			if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := Load(path)
			if err == nil || !strings.Contains(err.Error(), c.why) || !strings.HasPrefix(err.Error(), path) {
				t.Errorf("want %q, got %v", c.why, err)
			}
		})
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "there is no load run") {
		t.Errorf("%v", err)
	}
}

func TestPerfData(t *testing.T) {
	r := smallRun()
	data, err := filing.EncodeJSON(perfData(&r))
	if err != nil {
		t.Fatal(err)
	}
	// As k8s.io/kubernetes/test/e2e/perftype has it.
	var p struct {
		Version   string `json:"version"`
		DataItems []struct {
			Data   map[string]float64 `json:"data"`
			Unit   string             `json:"unit"`
			Labels map[string]string  `json:"labels"`
		} `json:"dataItems"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	if p.Version != "v1" || len(p.DataItems) == 0 {
		t.Fatalf("%+v", p)
	}
	for _, i := range p.DataItems {
		if i.Unit == "ms" && (i.Data["Perc50"] <= 0 || i.Data["Perc50"] > i.Data["Perc90"] || i.Data["Perc90"] > i.Data["Perc99"] || i.Labels["Count"] == "") {
			t.Errorf("%+v", i)
		}
	}
}

// The text format's parser reads what is common to both formats.
func TestOpenMetrics(t *testing.T) {
	r := smallRun()
	r.Blocks[0].Variant = "a \"quoted\"\nvariant"
	text, err := openMetrics(&r)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(text, []byte("# EOF\n")) || !bytes.Contains(text, []byte("# TYPE authzconf_load_answers counter\n")) {
		t.Error("this is not OpenMetrics")
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	f := families["authzconf_load_latency_seconds"]
	if f == nil {
		t.Fatal("there is no latency")
	}
	var requests uint64
	for _, m := range f.Metric {
		requests += m.Histogram.GetSampleCount()
		var last uint64
		for _, b := range m.Histogram.Bucket {
			if want := upTo(&r, m.Label, b.GetUpperBound()); b.GetCumulativeCount() != want {
				t.Errorf("bucket %g has %d, counted %d", b.GetUpperBound(), b.GetCumulativeCount(), want)
			}
			if b.GetCumulativeCount() < last {
				t.Errorf("bucket %g has %d, the one before %d", b.GetUpperBound(), b.GetCumulativeCount(), last)
			}
			last = b.GetCumulativeCount()
		}
		if last != m.Histogram.GetSampleCount() {
			t.Errorf("the last bucket has %d of %d", last, m.Histogram.GetSampleCount())
		}
	}
	var sent uint64
	for _, b := range r.Blocks {
		sent += uint64(b.Sent)
	}
	if requests != sent {
		t.Errorf("%d latencies of %d requests", requests, sent)
	}
}

// upTo counts the latencies of a variant up to a number of seconds, from the buckets
// of its blocks.
func upTo(r *run.Run, labels []*dto.LabelPair, seconds float64) (n uint64) {
	of := map[string]string{}
	for _, l := range labels {
		of[l.GetName()] = l.GetValue()
	}
	for i := range r.Blocks {
		b := &r.Blocks[i]
		if b.Variant != of["variant"] || b.Server != of["server"] || strconv.Itoa(b.Agents) != of["agents"] {
			continue
		}
		b.Latency.Each(func(bucket int, count int64) {
			if _, to := histogram.Bounds(bucket); (to - 1).Seconds() <= seconds {
				n += uint64(count)
			}
		})
	}
	return n
}

func pageOf(t *testing.T, r run.Run) (string, *html.Node) {
	t.Helper()
	result := Judge(r, smallThresholds())
	page, err := HTML(&r, &result)
	if err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	return string(page), root
}

// The page has all plots and fetches nothing.
func TestPageIsSelfContained(t *testing.T) {
	page, root := pageOf(t, smallRun())
	plots := 0
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		switch n.Data {
		case "svg":
			plots++
		case "script", "link", "img", "image", "iframe", "object", "use":
			t.Errorf("<%s> is on the page", n.Data)
		}
		for _, a := range n.Attr {
			if a.Key == "src" || a.Key == "href" || strings.HasPrefix(a.Key, "on") {
				t.Errorf("<%s %s=%q> fetches or runs something", n.Data, a.Key, a.Val)
			}
		}
	}
	if plots != 4 {
		t.Errorf("%d plots, want 4", plots)
	}
	if strings.Contains(page, "url(") || strings.Contains(page, "@import") || strings.Contains(page, "ZgotmplZ") || strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
		t.Error("the page fetches something, lost something, or shows no number")
	}
	again, _ := pageOf(t, smallRun())
	if again != page {
		t.Error("the page is another when it is made again")
	}
}

// Whatever names are in a run, they are text on the page and in the summary.
func TestEscapes(t *testing.T) {
	const evil = `"><script>alert('x')</script><img src=x onerror=y>|*a*`
	r := smallRun()
	r.Profile, r.Tool, r.ProfileYAML, r.Command = evil, evil, evil, []string{evil}
	r.Machine.Go, r.Machine.OS = evil, evil
	r.Problems = []run.Problem{{Block: -1, Text: evil}}
	for i := range r.Servers {
		r.Servers[i].GitVersion, r.Servers[i].Emulated, r.Servers[i].Gate = evil, evil, evil
		r.Servers[i].Name += evil
	}
	for i := range r.Blocks {
		b := &r.Blocks[i]
		b.Variant, b.Server, b.Comparison = b.Variant+evil, b.Server+evil, b.Comparison+evil
		b.Unreconciled = []string{evil}
		b.Kinds = map[string]histogram.Histogram{evil: b.Latency}
	}
	page, root := pageOf(t, r)
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && (n.Data == "script" || n.Data == "img") {
			t.Errorf("<%s> came from a name", n.Data)
		}
	}
	if !strings.Contains(page, "&lt;script&gt;") {
		t.Error("the names are not on the page")
	}
	result := Judge(r, smallThresholds())
	summary := markdownText(t, &r, &result)
	if regexp.MustCompile(`<[a-z]|[^\\]\*a`).MatchString(summary) {
		t.Error("a name is markup in the summary")
	}
}

// Runs with little or nothing in them have a page, too.
func TestPoorRunsAreRendered(t *testing.T) {
	empty := run.Run{APIVersion: run.APIVersion, Kind: run.Kind}
	bare := empty
	bare.Blocks = []run.Block{{}, {Variant: "x"}}
	one := smallRun()
	one.Blocks = one.Blocks[:1]
	for name, r := range map[string]run.Run{"empty": empty, "bare": bare, "one block": one} {
		for _, thresholds := range []Thresholds{{}, allOf()} {
			result := Judge(r, thresholds)
			if result.Outcome == Passed || len(result.Checks) == 0 {
				t.Errorf("%s: %s", name, reasonsText(result))
			}
			if err := Write(filepath.Join(t.TempDir(), "r"), r, result); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
