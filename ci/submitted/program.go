package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// verifier verifies a bundle by the authzconf of a version.
type verifier func(ctx context.Context, version, bundle string) error

// programs are the programs of authzconf that made reports. Questions and scenarios change, and a report is right or wrong by
// those that were asked: so each is verified by the version that made it, which is built from the history of the repository.
type programs struct {
	// root is the repository, and base the revision that versions have to be part of.
	root, base string
}

// verify verifies a bundle, and returns what the program of this version says is wrong.
func (p *programs) verify(ctx context.Context, version, bundle string) error {
	program, err := p.build(ctx, version)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, program, "verify", bundle).CombinedOutput()
	if err != nil {
		return fmt.Errorf("authzconf verify (of %s): %s", version, firstLine(string(out), err))
	}
	return nil
}

// firstLine returns the first line of an output, or the error if there is none.
func firstLine(out string, err error) string {
	if line, _, _ := strings.Cut(strings.TrimSpace(out), "\n"); line != "" {
		return line
	}
	return err.Error()
}

// pseudoVersion fits a version that Go makes of a commit without a tag.
var pseudoVersion = regexp.MustCompile(`^v.*-(?:0\.)?[0-9]{14}-([0-9a-f]{12})$`)

// build returns the program of a version, which is built once and kept.
func (p *programs) build(ctx context.Context, version string) (string, error) {
	program, err := filepath.Abs(filepath.Join(p.root, programsFolder, version, "authzconf"))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	commit, err := p.findCommit(ctx, version)
	if err != nil {
		return "", err
	}
	source, err := os.MkdirTemp("", "authzconf-submitted-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(source) }()
	archive := filepath.Join(source, "source.tar")
	for _, command := range [][]string{
		{"git", "-C", p.root, "archive", "--output", archive, commit},
		{"tar", "-C", source, "-xf", archive},
		{"go", "-C", source, "build", "-trimpath", "-buildvcs=false", "-ldflags", "-X main.version=" + version, "-o", program, "./cmd/authzconf"},
	} {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("building authzconf %s: %s: %s", version, command[0], firstLine(string(out), err))
		}
	}
	return program, nil
}

// findCommit returns the commit of a version. It has to be part of the base: a pull request must not bring the program that
// verifies it.
func (p *programs) findCommit(ctx context.Context, version string) (string, error) {
	revision := version
	if m := pseudoVersion.FindStringSubmatch(version); m != nil {
		revision = m[1]
	}
	out, err := exec.CommandContext(ctx, "git", "-C", p.root, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}").
		Output()
	commit := strings.TrimSpace(string(out))
	if err != nil || commit == "" {
		return "", formErrorf(
			"there is no version %s in the history of this checkout (expected a release or a commit of main; a shallow clone needs git fetch --unshallow --tags)",
			version,
		)
	}
	err = exec.CommandContext(ctx, "git", "-C", p.root, "merge-base", "--is-ancestor", commit, p.base).Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return "", formErrorf(
			"version %s is not part of %s: reports are verified by versions that are released or on main",
			version,
			p.base,
		)
	}
	return commit, err
}
