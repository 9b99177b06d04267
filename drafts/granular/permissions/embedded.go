package permissions

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// embedding says that a resource has another one inside it, as the template of a Deployment has a Pod (KEP-3617,
// "Levels of schema control", case 2). In the KEP a permission belongs to the declaration of a field, and its verb does
// not contain the resource. So the embedded fields keep their verbs, and the authorizer is asked about the resource
// around them.
type embedding struct {
	// Path is the names of fields from the root of the object to the embedded one, joined by dots.
	Path     string `yaml:"path"`
	Group    string `yaml:"group"`
	Version  string `yaml:"version"`
	Resource string `yaml:"resource"`

	at string // the place in its file, for messages
}

// validFields matches names of fields that are joined by dots, without items.
var validFields = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]*(\.[A-Za-z_$][A-Za-z0-9_$-]*)*$`)

// checkEmbeds checks what a resource embeds, which is described at a path in its file, and that it excludes nothing of
// that. It returns the place of an error.
func checkEmbeds(r resource, path string) (at string, err error) {
	for i, e := range r.Embeds {
		if err := e.check(r, r.Embeds[:i]); err != nil {
			return fmt.Sprintf("%s.embeds[%d]", path, i), err
		}
		for j, f := range r.Fields {
			if err := e.checkOuter(f); err != nil {
				return fmt.Sprintf("%s.fields[%d]", path, j), err
			}
		}
	}
	return "", nil
}

// check checks what can be known of an embedding without other resources. earlier are those of the same resource before
// it.
func (e embedding) check(r resource, earlier []embedding) error {
	isNamed := validName.MatchString(e.Resource) && e.Resource != "*"
	switch {
	case r.Resource == "*":
		return fmt.Errorf("path %q: embeds in every resource, expected them in a resource with a name", e.Path)
	case !validFields.MatchString(e.Path):
		return fmt.Errorf("path %q: expected names of fields joined by dots (items of a list or map cannot be embedded resources)", e.Path)
	case !isNamed || e.Version == "":
		return fmt.Errorf(
			"path %q: version is %q and resource %q, expected a version and the plural name of a resource",
			e.Path,
			e.Version,
			e.Resource,
		)
	}
	for _, other := range earlier {
		if isWithin(e.Path, other.Path) || isWithin(other.Path, e.Path) {
			return fmt.Errorf("path %q: expected it apart from %q, which embeds %s already", e.Path, other.Path, other.Resource)
		}
	}
	return nil
}

// checkOuter refuses a field of the resource around an embedded one that excludes something of the embedded one. Only
// who describes the embedded resource may do that.
func (e embedding) checkOuter(f *Field) error {
	if f == nil || !f.excludes() || !isWithin(f.Path, e.Path) {
		return nil
	}
	return fmt.Errorf(
		"path %q: it belongs to %s, which %q embeds, expected it to be excluded only where %s are described",
		f.Path,
		e.Resource,
		e.Path,
		e.Resource,
	)
}

// isWithin reports whether a path is another one, or below it.
func isWithin(path, other string) bool { return strings.HasPrefix(path+".", other+".") }

// checkEmbedded refuses a resource that embeds itself, and a description of what another one embeds.
func (s *Set) checkEmbedded() error {
	for i, r := range s.Resources {
		for _, e := range r.Embeds {
			if s.contains(e, i, map[[3]string]bool{}) {
				return fmt.Errorf(
					"%s: path %q: %s would embed itself, expected a resource that does not embed %s",
					e.at,
					e.Path,
					r.Resource,
					r.Resource,
				)
			}
		}
	}
	for _, r := range s.Resources {
		for _, e := range r.Embeds {
			if err := s.checkAround(r, e); err != nil {
				return fmt.Errorf("%s: %w", e.at, err)
			}
		}
	}
	return nil
}

// contains reports whether the description with a number is of what is embedded, or of something embedded in that. seen
// has the resources that were looked at.
func (s *Set) contains(e embedding, number int, seen map[[3]string]bool) bool {
	id := [3]string{e.Group, e.Version, e.Resource}
	if seen[id] {
		return false
	}
	seen[id] = true
	for i, r := range s.Resources {
		if !r.applies(e.Group, e.Version, e.Resource) {
			continue
		}
		isInner := slices.ContainsFunc(r.Embeds, func(inner embedding) bool { return s.contains(inner, number, seen) })
		if i == number || isInner {
			return true
		}
	}
	return false
}

// checkAround refuses fields of the resource around an embedded one, in all its descriptions, that exclude something of
// the embedded one or describe it again.
func (s *Set) checkAround(r resource, e embedding) error {
	inner := s.fieldsIn(e)
	for _, other := range s.Resources {
		if !other.describes(r.Group, r.Resource) || !r.sharesVersion(other) {
			continue
		}
		for _, f := range other.Fields {
			if err := e.checkOuter(f); err != nil {
				return err
			}
			if slices.ContainsFunc(inner, func(g *Field) bool { return g.Path == f.Path }) {
				return fmt.Errorf("path %q: described twice, expected it only where %s are described", f.Path, e.Resource)
			}
		}
	}
	return nil
}

// sharesVersion reports whether two descriptions are of the same version of a resource.
func (r resource) sharesVersion(other resource) bool {
	return slices.ContainsFunc(r.Versions, other.hasVersion) || slices.ContainsFunc(other.Versions, r.hasVersion)
}

// checkKnown refuses an embedded resource that nothing describes, which would be unguarded by mistake.
func (s *Set) checkKnown() error {
	for _, r := range s.Resources {
		for _, e := range r.Embeds {
			isKnown := slices.ContainsFunc(s.Resources, func(r resource) bool {
				return r.Resource != "*" && r.applies(e.Group, e.Version, e.Resource)
			})
			if !isKnown {
				return fmt.Errorf(
					"%s: path %q: nothing describes %s of the group %q in the version %q, expected a resource that is described",
					e.at,
					e.Path,
					e.Resource,
					e.Group,
					e.Version,
				)
			}
		}
	}
	return nil
}

// fieldsOf returns the fields of a description, and those of what it embeds.
func (s *Set) fieldsOf(r resource) []*Field {
	out := slices.Clone(r.Fields)
	for _, e := range r.Embeds {
		out = append(out, s.fieldsIn(e)...)
	}
	return out
}

// fieldsIn returns the fields of an embedded resource, by their paths in the resource around it. Left out is the
// status, which only a stored object has. Left out is also which items a second description of a field excludes: that
// is a rule about the objects of a resource, such as Namespaces, and not about its type ("Levels of schema control",
// case 3).
func (s *Set) fieldsIn(e embedding) (out []*Field) {
	seen := map[string]bool{}
	for _, f := range s.Fields(e.Group, e.Version, e.Resource) {
		if seen[f.Path] || isWithin(f.Path, "status") {
			continue
		}
		seen[f.Path] = true
		inner := *f
		inner.Path = e.Path + "." + f.Path
		out = append(out, &inner)
	}
	return out
}
