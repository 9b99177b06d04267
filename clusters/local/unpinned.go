package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"

	"github.com/authzconf/authzconf/internal/usage"
)

// These are the two files that make a module. A module that is not pinned has both once it is complete.
const (
	modFile = "go.mod"
	sumFile = "go.sum"
)

// hasModule reports whether the module of a version that is not pinned was made before.
func (b *Binaries) hasModule(p program) bool {
	dir, err := b.moduleDir(p)
	return err == nil && isFile(filepath.Join(dir, sumFile))
}

// readModule returns the module that was made in a folder.
func readModule(dir string) (p pin, err error) {
	p.name = filepath.Base(dir)
	if p.mod, err = os.ReadFile(filepath.Join(dir, modFile)); err != nil {
		return p, err
	}
	p.sum, err = os.ReadFile(filepath.Join(dir, sumFile))
	return p, err
}

// write writes the files of the module into a folder. The file that makes it complete is last.
func (p pin) write(dir string) error {
	if err := writeIfChanged(filepath.Join(dir, modFile), p.mod); err != nil {
		return err
	}
	return writeIfChanged(filepath.Join(dir, sumFile), p.sum)
}

// newUnfinishedModule returns the module of a folder whose go.mod and go.sum the go command may complete.
func newUnfinishedModule(dir string) module {
	m := newModule(dir)
	m.env = append(m.env, "GOFLAGS=-mod=mod")
	return m
}

// makeModule makes the module in which a kube-apiserver of a version that is not pinned is built. It requires that
// version of k8s.io/kubernetes, and the staging modules that were published with it. What it downloads is compared with
// the checksums that the go command knows, and with none that are pinned here. refused says why the program was not
// downloaded, and is nil if nobody tried.
func (b *Binaries) makeModule(ctx context.Context, p program, refused error) error {
	if b.hasModule(p) {
		return nil
	}
	err := b.tryModule(ctx, p)
	if err == nil || ctx.Err() != nil || usage.Is(err) {
		return err
	}
	return &usage.Error{
		Problem: fmt.Sprintf("Kubernetes %s cannot be had: %s", p.version, strings.Join(explainAbsence(refused, err), "; ")),
		Hint:    "name another version, a mirror (--binaries-mirror), or a tree to build (--source)",
		Err:     errors.Join(refused, err),
	}
}

// explainAbsence returns why a version was neither downloaded nor built, each on one line.
func explainAbsence(refused, unbuilt error) (reasons []string) {
	if refused != nil {
		reasons = append(reasons, "it was not downloaded, because "+firstLine(refused))
	}
	return append(reasons, "it was not built, because "+firstLine(unbuilt))
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	return strings.TrimSpace(line)
}

// tryModule makes the module beside its place, and moves it there when it is complete.
func (b *Binaries) tryModule(ctx context.Context, p program) error {
	if isCI(p.version) {
		return errors.New("builds of CI have no modules")
	}
	dir, err := b.moduleDir(p)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "making-")
	if err != nil {
		return folderError("cache folder", filepath.Dir(dir), CacheVariable, err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := b.writeModule(ctx, work, p.version); err != nil {
		return err
	}
	b.report("finding the modules of %s %s", p.name, p.version)
	if _, err := b.runGo(ctx, newUnfinishedModule(work), "mod", "tidy"); err != nil {
		return fmt.Errorf("%s", lastLine(err))
	}
	module, err := readModule(work)
	if err != nil {
		return err
	}
	return module.write(dir)
}

// lastLine returns the last line of what the go command printed. Before that it lists what it downloads.
func lastLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	for _, line := range lines {
		if strings.Contains(line, "reading ") || strings.Contains(line, "requires go") {
			return strings.TrimSpace(line)
		}
	}
	return strings.TrimSpace(lines[len(lines)-1])
}

// writeModule writes the go.mod of a kube-apiserver of a version. It contains what k8s.io/kubernetes itself requires,
// with the published staging modules in place of the folders that replace them there.
func (b *Binaries) writeModule(ctx context.Context, dir, version string) error {
	head := fmt.Sprintf("module authzconf.dev/control-plane/%s%s\n", kubernetesPin, version)
	if err := os.WriteFile(filepath.Join(dir, modFile), []byte(head), 0o644); err != nil {
		return err
	}
	out, err := b.runGo(ctx, newUnfinishedModule(dir), "mod", "download", "-json", kubernetesModule+"@v"+version)
	if err != nil {
		return fmt.Errorf("%s", lastLine(downloadError(out, err)))
	}
	var info struct{ GoMod string }
	if err := json.Unmarshal([]byte(out), &info); err != nil {
		return err
	}
	goMod, err := os.ReadFile(info.GoMod)
	if err != nil {
		return err
	}
	text, err := deriveModule(head, goMod, version)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, modFile), text, 0o644)
}

// downloadError returns the error that go mod download wrote into its answer, which is clearer than that of the
// command.
func downloadError(out string, err error) error {
	var answer struct{ Error string }
	if json.Unmarshal([]byte(out), &answer) == nil && answer.Error != "" {
		return errors.New(answer.Error)
	}
	return err
}

// deriveModule returns the go.mod of a kube-apiserver, which begins with head, derived from that of k8s.io/kubernetes.
func deriveModule(head string, goMod []byte, version string) ([]byte, error) {
	file, err := modfile.Parse("go.mod of "+kubernetesModule, goMod, nil)
	if err != nil {
		return nil, err
	}
	own, err := modfile.Parse(modFile, []byte(head), nil)
	if err != nil {
		return nil, err
	}
	staging := "v0." + strings.TrimPrefix(version, "1.")
	if file.Go != nil {
		err = own.AddGoStmt(file.Go.Version)
	}
	for _, setting := range file.Godebug {
		err = cmp.Or(err, own.AddGodebug(setting.Key, setting.Value))
	}
	err = cmp.Or(err, own.AddTool(kubeAPIServerPackage), own.AddRequire(kubernetesModule, "v"+version))
	for _, r := range file.Require {
		required := r.Mod.Version
		if required == "v0.0.0" {
			required = staging
		}
		err = cmp.Or(err, own.AddRequire(r.Mod.Path, required))
	}
	if err != nil {
		return nil, err
	}
	return own.Format()
}
