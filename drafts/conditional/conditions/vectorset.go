package conditions

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

// vectorSet are the vectors that are played.
type vectorSet struct {
	all []*vectors.Vector
	// folder is the folder of the vectors. It is empty for the vectors that come with authzconf.
	folder string
	// texts are the texts of the files, by their names in the folder.
	texts map[string][]byte
	// prefix is put in front of the IDs of vectors if the folder is part of kep-5681, so that known divergences are
	// recognized.
	prefix string
}

// loadSet reads the vectors of the folder that the command line names. Without one it reads the vectors that come with
// authzconf.
func loadSet(i *product.Invocation) (*vectorSet, error) {
	if len(i.Args) == 0 {
		all, err := vectors.Builtin()
		return &vectorSet{all: all}, err
	}
	s := &vectorSet{folder: i.Args[0], texts: map[string][]byte{}}
	files, err := i.ReadFolder(s.folder, vectors.Suffix)
	if err == nil && i.Scenarios != "" {
		err = compareFolders(files, os.DirFS(i.Scenarios), i.Scenarios)
	}
	if err != nil {
		return nil, err
	}
	if s.prefix, err = readPrefix(i, s.folder); err != nil {
		return nil, err
	}
	s.all, err = scenarios.LoadAll(files, vectors.Suffix, s.parse)
	if err != nil {
		return nil, fmt.Errorf("vectors in %s:\n%w", s.folder, err)
	}
	if len(s.all) == 0 {
		return nil, fmt.Errorf("%s: there are no vectors in it (expected files whose names end in %s)", s.folder, vectors.Suffix)
	}
	return s, nil
}

func (s *vectorSet) parse(name string, raw []byte) ([]*vectors.Vector, error) {
	s.texts[name] = raw
	all, err := vectors.Parse(name, raw)
	for _, v := range all {
		v.ID = s.prefix + v.ID
	}
	return all, err
}

// readPrefix returns the prefix of the IDs of vectors in a folder. The prefix depends on where the folder is, so it is
// part of the record.
func readPrefix(i *product.Invocation, folder string) (string, error) {
	if !i.Verifying() {
		i.AddInput(folder, prefixOf(folder))
	}
	prefix, err := i.ReadInput(folder)
	return string(prefix), err
}

func prefixOf(folder string) string {
	full, err := filepath.Abs(folder)
	if err != nil {
		return "" // the working directory is unknown
	}
	if _, relative, isPart := strings.Cut(filepath.ToSlash(full)+"/", "/kep-5681/"); isPart {
		return "kep-5681/" + relative
	}
	return ""
}

// compareFolders returns an error unless the vectors of a record are the same as the vectors of the folder that was
// given to verify.
func compareFolders(recorded, files fs.FS, folder string) error {
	first, err := readTexts(recorded)
	if err != nil {
		return err
	}
	second, err := readTexts(files)
	if err != nil {
		return fmt.Errorf("--scenarios %s: %w", folder, err)
	}
	for _, name := range slices.Sorted(maps.Keys(first)) {
		if first[name] != second[name] {
			return fmt.Errorf("%s is not the file of that name in %s", name, folder)
		}
	}
	if len(second) > len(first) {
		return fmt.Errorf("the report is about %s of vectors, and %s has %d", reports.Plural(len(first), "file"), folder, len(second))
	}
	return nil
}

// readTexts returns the texts of the vector files in a file system, by their names.
func readTexts(files fs.FS) (map[string]string, error) {
	texts := map[string]string{}
	_, err := scenarios.LoadAll(files, vectors.Suffix, func(name string, raw []byte) ([]string, error) {
		texts[name] = string(raw)
		return nil, nil
	})
	return texts, err
}

// describe returns how many of the vectors are unchanged files of authzconf, so that nobody takes a few vectors, or
// others, for all of them.
func (s *vectorSet) describe() (string, error) {
	texts, err := readTexts(scenarios.FS)
	if err != nil {
		return "", err
	}
	count := len(texts)
	if s.folder != "" {
		count = 0
		for name, text := range s.texts {
			if texts[s.prefix+name] == string(text) {
				count++
			}
		}
	}
	if count == 0 {
		return "of somebody's own", nil
	}
	return fmt.Sprintf("of %d of authzconf's %d files", count, len(texts)), nil
}

// checkPolicies finds policies that the reference authorizer does not accept. A webhook may know more functions.
func (s *vectorSet) checkPolicies() error {
	for _, v := range s.all {
		if v.Webhook == nil || s.folder == "" {
			continue
		}
		if _, err := reference.NewSnapshot(v.Webhook.Policies); err != nil {
			return s.locate(v, err)
		}
	}
	return nil
}

// locate returns an error about a policy with its place in the file. The error begins with the path of the policy.
func (s *vectorSet) locate(v *vectors.Vector, err error) error {
	doc, decodeErr := scenarios.Decode(filepath.Join(s.folder, v.File), s.texts[v.File], "a test vector", &vectors.Vector{})
	if decodeErr != nil {
		return decodeErr
	}
	at, why, _ := strings.Cut(err.Error(), ": ")
	return fmt.Errorf("%s: %s (expected a policy as the reference authorizer takes it)", doc.At("$.webhook"+at[1:]), why)
}

// checkRuns returns an error unless some vector says something about the subject.
func (s *vectorSet) checkRuns(all cases, subject string) error {
	if len(all.running()) > 0 {
		return nil
	}
	return fmt.Errorf(
		"%s: none of %s says anything about %s (expected API-server vectors for --library and --api-server, else webhook vectors)",
		s.folder,
		reports.Plural(len(s.all), "vector"),
		subject,
	)
}
