package permissions

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

var (
	validSegment = regexp.MustCompile(`^([A-Za-z_$][A-Za-z0-9_$-]*|\*)$`)
	// validVerb matches lowerCamelCase without dots, so that a path of fields is never a verb (KEP-3617, "Style Guide /
	// Consistency Help").
	validVerb = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)
	validName = regexp.MustCompile(`^(\*|[a-z][a-z0-9-]*)$`)
)

// Parse reads one file of descriptions, which needs no other. name is for messages.
func Parse(name string, data []byte) (*Set, error) {
	set, err := parseFile(name, data)
	if err != nil {
		return nil, err
	}
	if err := set.checkKnown(); err != nil {
		return nil, err
	}
	return set, nil
}

// parseFile reads one file of descriptions, which may embed resources that another file describes.
func parseFile(name string, data []byte) (*Set, error) {
	set := &Set{}
	y, err := scenarios.DecodeKind(name, data, "a file of field permissions", "", Kind, set)
	if err != nil {
		return nil, err
	}
	if len(set.Resources) == 0 {
		return nil, fmt.Errorf("%s: resources: expected at least one", y.At("$"))
	}
	knownVerbs := verbs{}
	for i, r := range set.Resources {
		path := fmt.Sprintf("$.resources[%d]", i)
		if at, err := checkResource(r, path, knownVerbs); err != nil {
			return nil, fmt.Errorf("%s: %w", y.At(at), err)
		}
		for j := range r.Embeds {
			r.Embeds[j].at = y.At(fmt.Sprintf("%s.embeds[%d]", path, j))
		}
	}
	if err := set.checkEmbedded(); err != nil {
		return nil, err
	}
	if err := set.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return set, nil
}

// checkResource checks the description of a resource, which is at a path in its file. It returns the place of an error.
// knownVerbs has the verbs of the resources before it.
func checkResource(r resource, path string, knownVerbs verbs) (at string, err error) {
	if err := checkNames(r); err != nil {
		return path, err
	}
	if at, err := checkEmbeds(r, path); err != nil {
		return at, err
	}
	root, seen := &Node{}, map[string]bool{}
	for i, field := range r.Fields {
		err := checkField(field, seen)
		if err == nil {
			err = field.checkVerb(r.Resource)
		}
		if err == nil {
			err = knownVerbs.add(field)
		}
		if err == nil {
			err = root.add(field)
		}
		if err != nil {
			return fmt.Sprintf("%s.fields[%d]", path, i), err
		}
		seen[field.Path] = true
	}
	return "", nil
}

// checkNames checks everything of a resource but its fields.
func checkNames(r resource) error {
	switch {
	case !validName.MatchString(r.Resource):
		return fmt.Errorf("resource is %q, expected the plural name of a resource, or *", r.Resource)
	case (r.Group == "*") != (r.Resource == "*"):
		return fmt.Errorf("group %q and resource %q: expected both to be *, or none", r.Group, r.Resource)
	case len(r.Versions) == 0 || len(r.Fields)+len(r.Embeds) == 0:
		return fmt.Errorf("resource %q: expected versions and fields, or embeds", r.Resource)
	}
	return nil
}

// checkField checks one field. seen has the paths of the fields before it.
func checkField(f *Field, seen map[string]bool) error {
	if f == nil {
		return errors.New("expected a field, with path and verb")
	}
	if err := f.checkPath(seen); err != nil {
		return err
	}
	if err := f.checkValues(); err != nil {
		return err
	}
	isItem := strings.HasSuffix(f.Path, ".*")
	switch {
	case f.ExcludedItems != nil && !f.hasKeys():
		return fmt.Errorf(
			"path %q: excludedItems are keys of a map, expected a path that ends with * and a parameter of the source mapKey",
			f.Path,
		)
	case isItem && f.Parameter == nil:
		return fmt.Errorf("path %q: expected a parameter, for each item has a permission of its own", f.Path)
	case f.Parameter == nil:
		return nil
	case !strings.Contains(f.Path, "*"):
		return fmt.Errorf("path %q: a parameter comes from an item, expected * in the path", f.Path)
	}
	return f.Parameter.check(f.Path)
}

// checkPath checks the segments of a path. A path does not say by which key the items of a list are identified: the
// parameter says that.
func (f *Field) checkPath(seen map[string]bool) error {
	segments := f.Segments()
	for i, s := range segments {
		startsWithItems := i == 0 && s == "*"
		if !validSegment.MatchString(s) || startsWithItems {
			return fmt.Errorf("path %q: expected names of fields, or * for items, joined by dots", f.Path)
		}
		prefix := strings.Join(segments[:i+1], ".")
		isInner := i < len(segments)-1
		if s == "*" && isInner && !seen[prefix] {
			return fmt.Errorf("path %q: expected %q to be described before it", f.Path, prefix)
		}
	}
	return nil
}

// hasKeys reports whether the field is every item of a map, by its key, so that some keys of it can be excluded.
func (f *Field) hasKeys() bool {
	byKey := f.Parameter != nil && f.Parameter.Source == MapKey
	return byKey && !f.Excluded && strings.HasSuffix(f.Path, ".*")
}

func (p *Parameter) check(path string) error {
	switch {
	case !slices.Contains([]Source{MapKey, ItemValue, ItemKey}, p.Source):
		return fmt.Errorf("path %q: source is %q, expected mapKey, itemValue or itemKey", path, p.Source)
	case (p.Source == ItemKey) != (p.Key != ""):
		return fmt.Errorf("path %q: key is %q, expected one for itemKey and only then", path, p.Key)
	case p.Treatment != Verbatim && p.Treatment != SlashDelimitedPrefix:
		return fmt.Errorf("path %q: treatment is %q, expected %s or none", path, p.Treatment, SlashDelimitedPrefix)
	}
	return nil
}

// Load reads every description in a file system.
func Load(files fs.FS) (*Set, error) {
	resources, err := scenarios.LoadAll(files, ".yaml", func(name string, data []byte) ([]resource, error) {
		set, err := parseFile(name, data)
		if err != nil {
			return nil, err
		}
		return set.Resources, nil
	})
	if err != nil {
		return nil, err
	}
	if len(resources) == 0 {
		return nil, fmt.Errorf("it contains no descriptions (expected .yaml files of the kind %s)", Kind)
	}
	all := &Set{Resources: resources}
	for _, check := range []func() error{all.checkEmbedded, all.checkKnown, all.check} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return all, nil
}
