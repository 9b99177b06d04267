package providers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/internal/usage"
)

func TestNew(t *testing.T) {
	for _, name := range Names(func(clusters.Capabilities) bool { return true }) {
		p, err := New(name, Settings{})
		if err != nil || p.Name() != name {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	_, err := New("moon", Settings{})
	if want := `unknown provider "moon": expected ` + Known(); !usage.Is(err) || err.Error() != want {
		t.Errorf("%v (expected %s)", err, want)
	}
	if none := (clusters.Capabilities{}); CapabilitiesOf("moon") != none {
		t.Errorf("an unknown provider can do %+v", CapabilitiesOf("moon"))
	}
}

// TestCapabilities checks that a provider can do what it says that it can.
func TestCapabilities(t *testing.T) {
	for _, entry := range table {
		can := CapabilitiesOf(entry.name)
		p := entry.provider(Settings{})
		if _, restarts := p.(clusters.Restarter); restarts != can.Restart {
			t.Errorf("%s: it is a Restarter: %t, its capability Restart: %t", entry.name, restarts, can.Restart)
		}
		if can.Kill && !can.Restart {
			t.Errorf("%s: what is killed has to be replaced", entry.name)
		}
		if _, networked := p.(clusters.Networked); networked && !can.Recorder {
			t.Errorf("%s: its clusters reach this process, and no recorder is asked there", entry.name)
		}
		if can.Recorder && !can.AuditLog {
			t.Errorf("%s: where the recorder is, the engine waits for the audit event of each request", entry.name)
		}
		if can.Foreign && can != (clusters.Capabilities{Foreign: true}) {
			t.Errorf("%s: nothing else can be done with a foreign cluster: %+v", entry.name, can)
		}
	}
}

func TestNames(t *testing.T) {
	cheap := Names(func(can clusters.Capabilities) bool { return can.Cheap })
	if !slices.Contains(cheap, "local") || slices.Contains(cheap, "kind") || Default() != "local" {
		t.Errorf("cheap are %q, the default is %s", cheap, Default())
	}
	for provider, want := range map[string]string{"local": "1.37", "kind": "kind-1.37"} {
		if got := CellName(provider, "1.37"); got != want {
			t.Errorf("a cell of %s is called %s (expected %s)", provider, got, want)
		}
	}
	got, want := Help(
		func(can clusters.Capabilities) bool { return can.Recorder },
	), "local (etcd and kube-apiserver as child processes)"
	if !strings.HasPrefix(got, want) || strings.Contains(got, "existing") {
		t.Errorf("%s (expected %s, and no provider without the recorder)", got, want)
	}
}

// TestNobodyComparesNames reads the source of everything outside of clusters/. What a cluster can do must be asked of
// its capabilities.
func TestNobodyComparesNames(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, _ := filepath.Rel(root, path)
		hidden := len(d.Name()) > 2 && strings.ContainsAny(d.Name()[:1], "._")
		if d.IsDir() &&
			(hidden || below == "clusters") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found, err := comparisons(below, source)
		for _, f := range found {
			t.Error(f)
		}
		return err
	})
	if err != nil || files < 100 {
		t.Errorf("%d files were read: %v", files, err)
	}
}

// comparisons returns where a file compares the name of a provider.
func comparisons(name string, source []byte) (found []string, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	note := func(n ast.Node) {
		found = append(found, fmt.Sprintf("%s: the name of a provider is compared: ask its capabilities", files.Position(n.Pos())))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			compares := n.Op == token.EQL || n.Op == token.NEQ
			if compares &&
				(namesProvider(n.X, n.Y) || namesProvider(n.Y, n.X)) {
				note(n)
			}
		case *ast.SwitchStmt:
			if n.Tag != nil && namesProvider(n.Tag, nil) {
				note(n)
			}
		}
		return true
	})
	return found, nil
}

// namesProvider reports whether an expression is the name of a provider, and is compared with another than none.
func namesProvider(e, with ast.Expr) bool {
	switch with := with.(type) {
	case *ast.Ident:
		if with.Name == "nil" {
			return false
		}
	case *ast.BasicLit:
		if with.Value == `""` {
			return false
		}
	}
	switch e := e.(type) {
	case *ast.Ident:
		return strings.EqualFold(e.Name, "provider")
	case *ast.SelectorExpr:
		return strings.EqualFold(e.Sel.Name, "provider") || isProvidersName(e)
	}
	return false
}

// isProvidersName reports whether an expression is one of the constants with the names of providers.
func isProvidersName(e *ast.SelectorExpr) bool {
	in, isIdent := e.X.(*ast.Ident)
	if !isIdent {
		return false
	}
	constants := map[string][]string{
		"server":   {"Local", "Kind", "Existing"},
		"local":    {"Name"},
		"kind":     {"ProviderName"},
		"existing": {"Name"},
	}
	return slices.Contains(constants[in.Name], e.Sel.Name)
}

func TestComparisons(t *testing.T) {
	const source = `package x
func f(o Options, provider, p string) bool {
	if o.Cell.Provider == "kind" || provider != p || p == server.Local {
		return o.Provider != nil && provider == ""
	}
	switch o.Provider {
	case "local":
	}
	return o.Cell.Name == "local"
}
`
	found, err := comparisons("x.go", []byte(source))
	if err != nil || len(found) != 4 {
		t.Errorf("%v, %q", err, found)
	}
}
