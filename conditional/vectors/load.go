package vectors

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

// Load reads every vector file below a folder, in the order of their paths, with tables written out. The error has
// one line for each file that is wrong, with file, line and column.
func Load(files fs.FS) ([]*Vector, error) {
	var out []*Vector
	var errs []error
	err := fs.WalkDir(files, ".", func(p string, d fs.DirEntry, err error) error {
		name := path.Base(p)
		switch {
		case err != nil:
			return fmt.Errorf("%s: cannot be read (expected a readable folder): %w", p, err)
		case d.IsDir() && p != "." && (name == "testdata" || name[0] == '.' || name[0] == '_'):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, Suffix):
			return nil
		}
		raw, err := fs.ReadFile(files, p)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: cannot be read: %w", p, err))
			return nil
		}
		vs, err := Parse(p, raw)
		if err != nil {
			errs = append(errs, err)
		}
		out = append(out, vs...)
		return nil
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return out, nil
}

// Builtin are the vectors that come with authzconf.
func Builtin() ([]*Vector, error) { return Load(scenarios.FS) }

// Parse reads one vector file. Its name gives the ID and stands in errors.
func Parse(name string, raw []byte) ([]*Vector, error) {
	v := &Vector{}
	f, err := scenarios.Decode(name, raw, "a test vector", v)
	if err != nil {
		return nil, err
	}
	v.ID, v.File = strings.TrimSuffix(name, Suffix), name
	c := &checker{file: f}
	c.vector(v)
	if c.err != nil {
		return nil, c.err
	}
	if v.Table == nil {
		complete(v)
		return []*Vector{v}, nil
	}
	rows := v.Table.expand(v)
	for i, row := range rows {
		c.apiServer(row.APIServer, fmt.Sprintf("$.table.rows[%d]", i))
		complete(row)
	}
	return rows, c.err
}

// expand makes an API-server vector of each row.
func (t *Table) expand(v *Vector) []*Vector {
	out := make([]*Vector, 0, len(t.Rows))
	for _, row := range t.Rows {
		m := &APIServer{Want: row.Want, Eager: row.Eager}
		words := strings.Fields(row.Chain)
		for _, word := range words {
			a := t.Authorizers[word]
			a.Conditions = slices.Clone(a.Conditions)
			m.Chain = append(m.Chain, a)
		}
		out = append(out, &Vector{
			ID: v.ID + "/" + strings.Join(words, "."), File: v.File,
			Description: v.Description + ": " + strings.Join(words, ", "),
			Source:      v.Source, Level: v.Level, APIServer: m,
		})
	}
	return out
}

// complete fills in what may be left out, so that nobody else has to know.
func complete(v *Vector) {
	if v.Webhook != nil {
		v.Webhook.FailureMode = cmp.Or(v.Webhook.FailureMode, FailDeny)
		return
	}
	m := v.APIServer
	m.Server.Version, m.Server.Gate, m.Server.Plugin = cmp.Or(m.Server.Version, "new"), cmp.Or(m.Server.Gate, "on"), cmp.Or(m.Server.Plugin, "on")
	if m.Request.Verb == "" && m.Request.Resource == "" {
		m.Request.Verb, m.Request.APIVersion, m.Request.Resource = "create", "v1", "configmaps"
	}
	m.Request.Served, m.Request.Mode = cmp.Or(m.Request.Served, "self"), cmp.Or(m.Request.Mode, string(Optimized))
	m.Objects = max(m.Objects, 1)
	completeChain(m.Chain, m.Objects)
	completeChain(m.Compound, m.Objects)
}

func completeChain(chain []Authorizer, objects int) {
	for i := range chain {
		a := &chain[i]
		a.Name, a.FailureMode = cmp.Or(a.Name, fmt.Sprintf("a%d", i)), cmp.Or(a.FailureMode, FailDeny)
		var all []EvaluatedCondition
		for _, c := range a.Conditions {
			if c.Length > 0 {
				c.Condition.Condition = strings.Repeat("x", c.Length)
			}
			if len(c.PerObject) == 0 {
				c.PerObject = slices.Repeat([]Truth{c.Is}, objects)
			}
			c.Is = c.PerObject[0]
			for n := range max(c.Repeat, 1) {
				one := c
				if c.Repeat > 0 {
					one.ID = fmt.Sprintf("%s-%d", c.ID, n)
				}
				all = append(all, one)
			}
		}
		a.Conditions = all
	}
}
