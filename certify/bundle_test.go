package certify

import (
	"archive/tar"
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/certify/reference"
)

// bundled is a bundle that holds: all answers are those of the policy, and were
// never asked.
func bundled(t testing.TB, b *Plan, p Product, levels ...CertificationLevel) (*Certification, Bundle) {
	t.Helper()
	var answers []Answer
	for _, v := range b.All() {
		if slices.Contains(levels, v.Level) {
			answers = append(answers, answered(v))
		}
	}
	for _, v := range b.first() {
		a := answered(v)
		if a.Check = first; slices.Contains(levels, Core) {
			answers = append(answers, a)
		}
	}
	c, err := b.Judge(answers)
	if err != nil {
		t.Fatal(err)
	}
	c.Started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c = c.Of(p)
	bundle, err := bundleOf(c, answers)
	if err != nil {
		t.Fatal(err)
	}
	return c, bundle
}

// answered is the answer that the policy gives, as if it had come.
func answered(v Question) Answer {
	a := Answer{Check: plain, Vector: v.ID, HTTP: 200, Protocol: 2}
	a.keep(reference.Answer(v.apiVersion(), v.Expect), v)
	return a
}

var example = Product{Vendor: "Example & <Co>", Name: "Auth", Version: "1.2", Contact: "auth@example.com"}

func TestProduct(t *testing.T) {
	for want, p := range map[string]Product{
		"":                             example,
		"product: it is missing":       {Vendor: "V"},
		"vendor: it is missing":        {Contact: "a@example.com"},
		"cannot be printed":            {Vendor: "V\n", Name: "P", Version: "1"},
		"begins or ends":               {Vendor: "V", Name: "P ", Version: "1"},
		"longer than 100":              {Vendor: "V", Name: "P", Version: strings.Repeat("1", 101)},
		"neither a mail address":       {Vendor: "V", Name: "P", Version: "1", Contact: "javascript:alert(1)"},
		`"http://e.com" is neither`:    {Vendor: "V", Name: "P", Version: "1", Contact: "http://e.com"},
		`"A <a@e.com>" is neither`:     {Vendor: "V", Name: "P", Version: "1", Contact: "A <a@e.com>"},
		"version: it is missing: vend": {Vendor: "V", Name: "P", Contact: "https://example.com"},
	} {
		err := p.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: expected %q, got %v", p, want, err)
		}
	}
	if err := (Product{}).Check(); err != nil {
		t.Errorf("nothing said: %v", err)
	}
}

// TestBundleForms reads the same bundle from a folder and from tars.
func TestBundleForms(t *testing.T) {
	b := plan(t, smallSeed)
	c, bundle := bundled(t, b, example, Core)
	if !slices.Equal(c.Levels, []CertificationLevel{Core}) || bundle["badge-core.svg"] == nil || bundle["badge-robust.svg"] != nil {
		t.Fatalf("levels %v, files %v", c.Levels, slices.Sorted(maps.Keys(bundle)))
	}
	folder := t.TempDir()
	if err := Direct(nil).Folder().Write(folder, bundle); err != nil {
		t.Fatal(err)
	}
	paths := []string{folder}
	for _, below := range []string{"c", "a/b"} {
		var out bytes.Buffer
		if err := bundle.Tar(&out, below, map[string][]byte{"a/beside": nil}); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "x.tar.gz")
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	for _, path := range paths {
		if _, differences, err := verify(t, path); err != nil || len(differences) > 0 {
			t.Errorf("%s: %v %v", path, differences, err)
		}
	}
}

func TestUnreadableBundles(t *testing.T) {
	pack := func(headers ...tar.Header) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	for want, raw := range map[string][]byte{
		"neither a folder nor a tar":          []byte("certification"),
		"certification.yaml 0 times":          pack(file("x")),
		"certification.yaml 2 times":          pack(file("a/"+certificationFile), file("b/"+certificationFile)),
		"is in it twice":                      pack(file("x"), file("./x")),
		"not a regular file":                  pack(tar.Header{Typeflag: tar.TypeSymlink, Name: "x", Linkname: "/etc/passwd"}),
		"a bundle has at most 1000 files":     pack(slices.Repeat([]tar.Header{file("x")}, 1)...),
		"it has no certification.yaml at all": nil,
	} {
		if want == "a bundle has at most 1000 files" {
			var many []tar.Header
			for i := range 1001 {
				many = append(many, file(strings.Repeat("x", i/50+1)+string(rune('A'+i%50))))
			}
			raw = pack(many...)
		}
		path := filepath.Join(t.TempDir(), "bundle")
		var err error
		if raw == nil {
			want = "it has no certification.yaml"
			err = os.Mkdir(path, 0o755)
		} else {
			err = os.WriteFile(path, raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := OpenBundle(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("expected %q, got %v", want, err)
		}
	}
}

func TestVerifyTellsVersionsApart(t *testing.T) {
	_, bundle := bundled(t, plan(t, smallSeed), example, Core)
	other := maps.Clone(bundle)
	other[certificationFile] = bytes.Replace(bundle[certificationFile], []byte("suiteDigest: "), []byte("suiteDigest: f"), 1)
	var e *OtherSuiteError
	if _, _, err := direct(t).Verify(other); !errors.As(err, &e) {
		t.Errorf("another suite: %v", err)
	}
	for name, c := range map[string]struct{ file, old, new, want string }{
		"unknown vector": {evidenceFile, "scenario/", "unheard-of/", "which seed 5 does not have"},
		"badge":          {"badge-core.svg", "core", "gold", "badge-core.svg: it does not show"},
		"summary":        {summaryFile, "yes", "no", "summary.md: it does not show"},
		"contact":        {certificationFile, "auth@example.com", "javascript:alert(1)", "contact: "},
	} {
		forged := maps.Clone(bundle)
		forged[c.file] = bytes.Replace(bundle[c.file], []byte(c.old), []byte(c.new), 1)
		_, differences, err := direct(t).Verify(forged)
		if err != nil || !strings.Contains(strings.Join(differences, "\n"), c.want) {
			t.Errorf("%s: expected %q, got %v, %v", name, c.want, differences, err)
		}
	}
	more := maps.Clone(bundle)
	more["badge-robust.svg"] = badge("robust", "")
	if _, differences, _ := direct(t).Verify(more); len(differences) != 1 {
		t.Errorf("a badge of a level that is not granted: %v", differences)
	}
	for _, name := range []string{"index.html", "BADGE-soak.svg", "Certification.yaml", junitFile} {
		more := maps.Clone(bundle)
		if more[name] = []byte("levels: [soak]"); name == junitFile {
			delete(more, name)
		}
		if _, differences, _ := direct(t).Verify(more); len(differences) != 1 {
			t.Errorf("%s: %v", name, differences)
		}
	}
}

// TestOldVersion has a bundle of an earlier version: it is refused with one clear error.
func TestOldVersion(t *testing.T) {
	_, bundle := bundled(t, plan(t, smallSeed), example, Core)
	bundle[certificationFile] = bytes.Replace(bundle[certificationFile], []byte("v1alpha2"), []byte("v1alpha1\nunheardOf: 1"), 1)
	if _, _, err := direct(t).Verify(bundle); err == nil || !strings.Contains(err.Error(), `apiVersion "authzconf.dev/v1alpha1": expected`) {
		t.Errorf("%v", err)
	}
}

// TestRegisterPage compares the page of a good, a forged, an old and an unreadable
// bundle with a golden file.
func TestRegisterPage(t *testing.T) {
	folder, b := t.TempDir(), plan(t, smallSeed)
	key, err := NewKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for name, change := range map[string]func(Bundle){
		"a-good": func(Bundle) {},
		"b-forged": func(f Bundle) {
			f[certificationFile] = bytes.Replace(f[certificationFile], []byte("- core\n"), []byte("- core\n- robust\n"), 1)
		},
		"c-older": func(f Bundle) {
			f[certificationFile] = bytes.Replace(f[certificationFile], []byte(b.Digest), []byte("0ld"), 1)
		},
		"d-unreadable": func(f Bundle) { f[certificationFile] = []byte("<script>") },
	} {
		product := example
		product.Name += " " + name
		_, bundle := bundled(t, b, product, Core)
		change(bundle)
		if err := Direct(nil).Folder().Write(filepath.Join(folder, name), bundle); err != nil {
			t.Fatal(err)
		}
	}
	if paths, err = Bundles(folder); err != nil || len(paths) != 4 {
		t.Fatalf("%v: %v", paths, err)
	}
	if err := Sign(paths[0], key); err != nil {
		t.Fatal(err)
	}
	page, err := Register(direct(t).Verify, "v1", folder, paths, nil)
	if err != nil {
		t.Fatal(err)
	}
	if page.Believed() != 1 {
		t.Errorf("%d bundles are believed", page.Believed())
	}
	raw, err := page.HTML()
	if err != nil {
		t.Fatal(err)
	}
	// The key and the suite are others every time, and with every scenario.
	text := strings.NewReplacer(key.ID()[:12], "KEY", b.Digest, "SUITE", b.Digest[:12], "SUITE").Replace(string(raw))
	const golden = "testdata/page.html"
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("the page differs from %s: run with -update and look at it", golden)
	}
	checked, err := Register(direct(t).Verify, "v1", folder, paths[:1], []*Key{key})
	if err != nil || len(checked.Rows[0].Problems) > 0 || !strings.HasPrefix(checked.Rows[0].Signature, "valid") {
		t.Errorf("%+v, %v", checked.Rows, err)
	}
}

func TestHandOver(t *testing.T) {
	_, bundle := bundled(t, plan(t, smallSeed), example, Core)
	folder := t.TempDir()
	if err := Direct(nil).Folder().Write(filepath.Join(folder, "bundle"), bundle); err != nil {
		t.Fatal(err)
	}
	for _, problem := range []error{nil, errors.New("no kubeconfig")} {
		results := filepath.Join(t.TempDir(), "results")
		if err := HandOver(results, filepath.Join(folder, "bundle"), problem); err != nil {
			t.Fatal(err)
		}
		done, err := os.ReadFile(filepath.Join(results, doneFile))
		if err != nil || string(done) != filepath.Join(results, resultsTar) {
			t.Fatalf("the done file says %q (%v)", done, err)
		}
		if problem == nil {
			if _, differences, err := verify(t, string(done)); err != nil || len(differences) > 0 {
				t.Errorf("%v %v", differences, err)
			}
			var edited bytes.Buffer
			if err := bundle.Tar(&edited, "bundle", map[string][]byte{sonobuoyFile: []byte("status: passed")}); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(string(done), edited.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := OpenBundle(string(done)); err == nil {
				t.Error("what Sonobuoy shows was edited, and it is not noticed")
			}
		}
	}
	c := &Certification{Results: []LevelResult{{Level: Core, Granted: true}, {Level: Robust, Findings: 1}}, Findings: []Finding{{Reason: "drifts", Level: Robust, Count: 2}}}
	var raw bytes.Buffer
	if err := sonobuoyResults.Execute(&raw, sonobuoy{c, nil}); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(raw.Bytes(), &map[string]any{}); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"name: authzconf\nstatus: failed", "name: core\n  status: passed", "name: drifts\n    status: failed"} {
		if !strings.Contains(raw.String(), want) {
			t.Errorf("no %q in\n%s", want, &raw)
		}
	}
}

func FuzzBundle(f *testing.F) {
	var out bytes.Buffer
	if err := (Bundle{certificationFile: []byte("seed: 1")}).Tar(&out, "x", nil); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Add([]byte("\x1f\x8b"))
	path := filepath.Join(f.TempDir(), "bundle")
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if b, err := OpenBundle(path); err == nil && b[certificationFile] == nil {
			t.Error("a bundle without a certification")
		}
	})
}
