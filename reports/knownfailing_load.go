package reports

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// KnownFailingKind is the kind of a known-failing file, of APIVersion.
const KnownFailingKind = "KnownFailingList"

// knownFailingLimit is the size up to which a file is read: a larger one is not
// a list that somebody keeps by hand.
const knownFailingLimit = 1 << 20

// knownFailingList is a known-failing file.
type knownFailingList struct {
	APIVersion string         `yaml:"apiVersion"`
	Kind       string         `yaml:"kind"`
	Entries    []KnownFailing `yaml:"entries"`
}

// LoadKnownFailing reads a known-failing file. It is strict: an unknown field, a
// missing reason, a bad pattern or an entry that is there twice is an error with
// file, line and column. name is for the messages.
func LoadKnownFailing(name string, data []byte) ([]KnownFailing, error) {
	if len(data) > knownFailingLimit {
		return nil, fmt.Errorf("%s: larger than %d bytes", name, knownFailingLimit)
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, located(name, err)
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return nil, fmt.Errorf("%s: must hold one YAML document, of kind %s", name, KnownFailingKind)
	}
	var list knownFailingList
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := dec.Decode(&list); err != nil && !errors.Is(err, io.EOF) {
		return nil, located(name, err)
	}
	at := func(path string) string { return name + position(file.Docs[0].Body, path) }
	if list.APIVersion != APIVersion {
		return nil, fmt.Errorf("%s: apiVersion must be %s, not %q", at("$.apiVersion"), APIVersion, list.APIVersion)
	}
	if list.Kind != KnownFailingKind {
		return nil, fmt.Errorf("%s: kind must be %s, not %q", at("$.kind"), KnownFailingKind, list.Kind)
	}
	return list.Entries, list.check(at)
}

// check holds the entries to the rules; all that is wrong is reported.
func (l knownFailingList) check(at func(path string) string) error {
	var errs []error
	first := map[[2]string]int{}
	for i, e := range l.Entries {
		here := fmt.Sprintf("$.entries[%d]", i)
		bad := func(field, format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s: %s", at(here+field), fmt.Sprintf(format, args...)))
		}
		if strings.TrimSpace(e.Scenario) == "" {
			bad("", "entry %d names no scenario", i+1)
		}
		if strings.TrimSpace(e.Reason) == "" {
			bad("", "entry %d states no reason: say a part of the failure that is expected", i+1)
		}
		for _, p := range [][2]string{{".scenario", e.Scenario}, {".cell", e.Cell}} {
			if _, err := path.Match(p[1], ""); err != nil {
				bad(p[0], "bad pattern %q", p[1])
			}
		}
		key := [2]string{e.Scenario, e.Cell}
		if n, ok := first[key]; ok {
			bad("", "entry %d is the same as entry %d", i+1, n+1)
			continue
		}
		first[key] = i
	}
	return errors.Join(errs...)
}

// located puts file, line and column before a decoding error.
func located(name string, err error) error {
	var ye yaml.Error
	if errors.As(err, &ye) && ye.GetToken() != nil && ye.GetToken().Position != nil {
		p := ye.GetToken().Position
		return fmt.Errorf("%s:%d:%d: %s", name, p.Line, p.Column, ye.GetMessage())
	}
	return fmt.Errorf("%s: %s", name, firstLine(err.Error()))
}

// position is ":line:column" of a path, or of the nearest parent that exists.
func position(root ast.Node, at string) string {
	for at != "$" && at != "" {
		if p, err := yaml.PathString(at); err == nil {
			if n, err := p.FilterNode(root); err == nil && n != nil && n.GetToken() != nil && n.GetToken().Position != nil {
				pos := firstToken(n)
				return fmt.Sprintf(":%d:%d", pos.line, pos.column)
			}
		}
		at = at[:max(strings.LastIndexAny(at, ".["), 0)]
	}
	return ""
}

type place struct{ line, column int }

// firstToken is where a node begins: the token of a mapping is its first colon,
// so its first key is looked up.
func firstToken(n ast.Node) place {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		return firstToken(m.Values[0].Key)
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		return firstToken(m.Key)
	}
	p := n.GetToken().Position
	return place{p.Line, p.Column}
}
