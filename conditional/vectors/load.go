package vectors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/scenarios/strict"
)

// maxFile is the size up to which a vector file is read.
const maxFile = 1 << 20

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
		vs, err := loadFile(files, p)
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

func loadFile(files fs.FS, name string) ([]*Vector, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w", name, err)
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w", name, err)
	}
	return Parse(name, raw)
}

// Parse reads one vector file. Its name gives the ID and stands in errors.
func Parse(name string, raw []byte) ([]*Vector, error) {
	v := &Vector{}
	f, err := strict.Decode(name, raw, v)
	if err != nil {
		return nil, err
	}
	v.ID, v.File = strings.TrimSuffix(name, Suffix), name
	path := "$.apiServer"
	if v.Machinery != nil && v.APIServer == nil {
		path = "$.machinery"
		v.APIServer, v.Machinery, v.Deprecated = v.Machinery, nil, f.At(path)+": machinery is deprecated: the field is called apiServer"
	}
	c := &checker{file: f}
	c.vector(v, path)
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
		v.Webhook.FailureMode = or(v.Webhook.FailureMode, FailDeny)
		for i := range v.Webhook.Steps {
			if e := v.Webhook.Steps[i].Evaluate; e != nil {
				for _, o := range []*Object{&e.Data.Options, &e.Data.Object, &e.Data.OldObject, &e.Data.NamespaceObject} {
					*o = object(*o)
				}
			}
		}
		return
	}
	m := v.APIServer
	m.Server.Version, m.Server.Gate, m.Server.Plugin = or(m.Server.Version, "new"), or(m.Server.Gate, "on"), or(m.Server.Plugin, "on")
	if m.Request.Verb == "" && m.Request.Resource == "" {
		m.Request.Verb, m.Request.APIVersion, m.Request.Resource = "create", "v1", "configmaps"
	}
	m.Request.Served, m.Request.Mode = or(m.Request.Served, "self"), or(m.Request.Mode, string(Optimized))
	m.Objects = max(m.Objects, 1)
	completeChain(m.Chain, m.Objects)
	completeChain(m.Compound, m.Objects)
}

func completeChain(chain []Authorizer, objects int) {
	for i := range chain {
		a := &chain[i]
		a.Name, a.FailureMode = or(a.Name, fmt.Sprintf("a%d", i)), or(a.FailureMode, FailDeny)
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

func or[T ~string](value, otherwise T) T {
	if value == "" {
		return otherwise
	}
	return value
}

// object gives numbers the types that they have after JSON: int64 or float64.
func object(in Object) Object {
	if in == nil {
		return nil
	}
	return jsonValue(map[string]any(in)).(map[string]any)
}

func jsonValue(v any) any {
	switch t := v.(type) {
	case map[string]any:
		out := maps.Clone(t)
		for k, e := range out {
			out[k] = jsonValue(e)
		}
		return out
	case []any:
		out := slices.Clone(t)
		for i, e := range out {
			out[i] = jsonValue(e)
		}
		return out
	case uint64:
		return int64(t)
	case int:
		return int64(t)
	}
	return v
}
