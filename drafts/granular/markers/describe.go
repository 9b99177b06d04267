package markers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// dialect is how one kind of schema writes what messages speak of.
type dialect struct {
	prefix string // of markers
	// identity is what gives the items of a list an identity.
	identity string
	// keys says where the source of a parameter stands for the keys of a map.
	keys string
}

// describe returns the descriptions of resources, and where they and their fields come from, by the path that
// permissions.Describe has for them.
func describe(roots []root, d dialect) (all []permissions.Description, places map[string]string, err error) {
	places = map[string]string{}
	for _, r := range roots {
		w := walker{dialect: d, used: map[mark]bool{}}
		if err := w.walk(r.schema, place{}); err != nil {
			return nil, nil, err
		}
		if err := w.checkSources(); err != nil {
			return nil, nil, err
		}
		if len(w.fields) == 0 {
			continue
		}
		if r.noGroup != nil {
			return nil, nil, r.noGroup
		}
		path := fmt.Sprintf("$.resources[%d]", len(all))
		places[path] = r.at
		for i, at := range w.at {
			places[fmt.Sprintf("%s.fields[%d]", path, i)] = at
		}
		all = append(all, permissions.Description{Group: r.group, Version: r.version, Resource: r.resource, Fields: w.fields})
	}
	return all, places, nil
}

// place is a place in an object.
type place struct {
	path []string
	// parameters are those that the path emits, by name.
	parameters map[string]parameter
	// atomic is the path of a list, map or struct around the place that is compared as a whole.
	atomic string
}

// parameter is a parameter that a path emits at one of its items.
type parameter struct {
	source permissions.Source
	key    string
	item   string // the path of the item
}

func (p place) String() string { return strings.Join(p.path, ".") }

// child returns the place of a field, or of every item ("*").
func (p place) child(name string) place {
	p.path = append(slices.Clone(p.path), name)
	return p
}

// emit adds a parameter that the item at this place emits.
func (p *place) emit(name string, source permissions.Source, key string) {
	p.parameters = maps.Clone(p.parameters)
	if p.parameters == nil {
		p.parameters = map[string]parameter{}
	}
	p.parameters[name] = parameter{source, key, p.String()}
}

// lastItem returns the path of the innermost item that the place is in, or "".
func (p place) lastItem() string {
	for i := len(p.path); i > 0; i-- {
		if p.path[i-1] == "*" {
			return strings.Join(p.path[:i], ".")
		}
	}
	return ""
}

// walker collects the fields of a resource that have a permission.
type walker struct {
	dialect
	fields []*permissions.Field
	at     []string // where each of the fields has its permission
	// sources are the markers of sources that must have an effect, and used are those that have one.
	sources []mark
	used    map[mark]bool
}

// walk collects the fields at a place and below it.
func (w *walker) walk(s *schema, at place) error {
	if s.ownSource != (mark{}) {
		w.sources = append(w.sources, s.ownSource)
	}
	if err := w.collect(s, at); err != nil {
		return err
	}
	if s.atomic {
		at.atomic = at.String()
	}
	for _, f := range s.fields {
		if err := w.walk(f.schema, at.child(f.name)); err != nil {
			return err
		}
	}
	if s.items != nil {
		return w.walk(s.items, w.item(s, at))
	}
	return nil
}

// item returns the place of every item of a map or list, with the parameters that an item emits.
func (w *walker) item(s *schema, list place) place {
	at := list.child("*")
	switch s.itemsBy {
	case permissions.MapKey:
		w.emit(&at, s.keySource, permissions.MapKey, "")
	case permissions.ItemValue:
		w.emit(&at, s.items.marks[parameterSource], permissions.ItemValue, "")
	case permissions.ItemKey:
		for _, key := range s.listKeys {
			if field := s.items.field(key); field != nil {
				w.emit(&at, field.marks[parameterSource], permissions.ItemKey, key)
			}
		}
	default:
		at.atomic = list.String()
	}
	return at
}

// emit adds the parameter that a marker names, if there is one.
func (w *walker) emit(at *place, m mark, from permissions.Source, key string) {
	if m == (mark{}) {
		return
	}
	w.used[m] = true
	at.emit(m.value, from, key)
}

// collect adds the field at a place, if it has a permission.
func (w *walker) collect(s *schema, at place) error {
	if err := s.marks.check(w.prefix); err != nil {
		return err
	}
	m, hasVerb := s.marks[permissionVerb]
	switch {
	case !hasVerb:
		return nil
	case len(at.path) == 0:
		return fmt.Errorf("%s: %sverb on a whole object, expected it on fields of it", m.at, w.prefix)
	case at.atomic != "":
		return fmt.Errorf(
			"%s: path %q: a change in %s is a change of the whole, because that is atomic (expected %s)",
			m.at,
			at,
			at.atomic,
			w.identity,
		)
	}
	f := &permissions.Field{Path: at.String(), Verb: m.value}
	_, f.Excluded = s.marks[permissionExcluded]
	if err := w.addValues(f, s.marks); err != nil {
		return err
	}
	if err := w.addParameter(f, s.marks, at); err != nil {
		return err
	}
	w.fields, w.at = append(w.fields, f), append(w.at, m.at)
	return nil
}

// addValues gives a field the excluded values that its markers name. Whole numbers are of the type that they have in a
// file of descriptions.
func (w *walker) addValues(f *permissions.Field, m marks) error {
	values, has := m[excludedValues]
	if !has {
		return nil
	}
	if err := json.Unmarshal([]byte(values.value), &f.ExcludedValues); err != nil {
		return fmt.Errorf("%s: %s%s is %s, expected %s", values.at, w.prefix, excludedValues, values.value, forms[excludedValues].expected)
	}
	return nil
}

// addParameter gives a field the parameter that its markers name.
func (w *walker) addParameter(f *permissions.Field, m marks, at place) error {
	parameter, has := m[parameterizedBy]
	if !has {
		return nil
	}
	p, isEmitted := at.parameters[parameter.value]
	switch {
	case !isEmitted:
		return fmt.Errorf(
			"%s: path %q: nothing in the path emits the parameter %q, expected %sparameter-source with it %s, on a field by which items of a list are identified, or on the items of a set",
			parameter.at,
			at,
			parameter.value,
			w.prefix,
			w.keys,
		)
	case p.item != at.lastItem():
		return fmt.Errorf(
			"%s: path %q: the parameter %q comes from %s, expected one of the last item, %s",
			parameter.at,
			at,
			parameter.value,
			p.item,
			at.lastItem(),
		)
	}
	f.Parameter = &permissions.Parameter{Source: p.source, Key: p.key, Treatment: permissions.Treatment(m[parameterTreatment].value)}
	return nil
}

// checkSources refuses the source of a parameter at a place that identifies nothing.
func (w *walker) checkSources() error {
	for _, m := range w.sources {
		if !w.used[m] {
			return fmt.Errorf(
				"%s: %sparameter-source has no effect here, expected it %s, on a field by which items of a list are identified, or on the items of a set",
				m.at,
				w.prefix,
				w.keys,
			)
		}
	}
	return nil
}
