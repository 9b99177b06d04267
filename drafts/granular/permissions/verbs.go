package permissions

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/authzconf/authzconf/internal/seq"
)

// checkVerb refuses a verb that does not follow KEP-3617 ("Style Guide / Consistency Help"). A verb must be in
// lowerCamelCase, and must not begin with the name of the resource or of a field around it, so that other resources can
// share the verb. It cannot check whether the verb is a noun: a reviewer has to do that.
func (f *Field) checkVerb(resource string) error {
	if !validVerb.MatchString(f.Verb) {
		return fmt.Errorf("path %q: verb is %q, expected lowerCamelCase", f.Path, f.Verb)
	}
	segments := f.Segments()
	ancestors := append([]string{resource, strings.TrimSuffix(resource, "s")}, segments[:len(segments)-1]...)
	for _, name := range ancestors {
		if beginsWithWord(f.Verb, name) {
			return fmt.Errorf(
				"path %q: verb %q begins with %q, which the field is in (expected a name that another resource can share)",
				f.Path,
				f.Verb,
				name,
			)
		}
	}
	return nil
}

// beginsWithWord reports whether a verb in lowerCamelCase begins with a word and has more words.
func beginsWithWord(verb, word string) bool {
	rest, begins := strings.CutPrefix(verb, word)
	next, _ := utf8.DecodeRuneInString(rest)
	isNamed := word != "" && word != "*"
	return isNamed && begins && unicode.IsUpper(next)
}

// form describes the parameter of a verb. Two descriptions of one verb must have the same form. Otherwise a grant for
// one of them would mean something else for the other.
func (f *Field) form() string {
	switch {
	case f.Parameter == nil:
		return "no parameter"
	case f.Parameter.Treatment == Verbatim:
		return "a parameter that is taken verbatim"
	}
	return "a parameter with the treatment " + string(f.Parameter.Treatment)
}

// verbs has the first field of each verb, to compare further ones with.
type verbs map[string]*Field

// add adds a field. It refuses a field whose verb has another form in an earlier field.
func (v verbs) add(f *Field) error {
	first, isKnown := v[f.Verb]
	if !isKnown {
		v[f.Verb] = f
		return nil
	}
	if first.form() != f.form() {
		return fmt.Errorf("path %q: verb %q has %s, and %s at path %q (expected one meaning for a verb, or another verb)",
			f.Path, f.Verb, f.form(), first.form(), first.Path)
	}
	return nil
}

// checkVerbs refuses descriptions that give one verb two meanings.
func (s *Set) checkVerbs() error {
	knownVerbs := verbs{}
	for _, r := range s.Resources {
		for _, f := range r.Fields {
			if err := knownVerbs.add(f); err != nil {
				return fmt.Errorf("%s: %w", r.Resource, err)
			}
		}
	}
	return nil
}

// Guard is a field with the permission that guards it.
type Guard struct {
	Resource, Versions, Path string
	// Verb is the verb that an authorizer is asked for, with a placeholder for the parameter.
	Verb string
	// Ordinary says which part of the field the ordinary permission contains: "yes", "no", or "but" with the keys and
	// values that it does not contain.
	Ordinary string
}

// Guards returns the described fields with the permission of each, in the order of the descriptions.
func (s *Set) Guards() (out []Guard) {
	for _, r := range s.Resources {
		for _, f := range s.fieldsOf(r) {
			out = append(out,
				Guard{
					Resource: r.name(),
					Versions: strings.Join(r.Versions, ", "),
					Path:     f.Path,
					Verb:     f.describe(),
					Ordinary: f.describeOrdinary(),
				},
			)
		}
	}
	return out
}

// Verb is a permission that guards some fields of an object and not the others.
//
// It comes with all fields that it guards.
type Verb struct {
	Verb   string
	Fields []string // each with its resource
}

// Verbs returns the permissions by themselves, sorted, each with the fields that it guards.
func (s *Set) Verbs() []Verb {
	fields := map[string][]string{}
	for _, g := range s.Guards() {
		fields[g.Verb] = seq.AppendMissing(fields[g.Verb], g.Resource+" "+g.Path)
	}
	all := []Verb{}
	for verb, guarded := range fields {
		all = append(all, Verb{verb, guarded})
	}
	slices.SortFunc(all, func(a, b Verb) int { return cmp.Compare(a.Verb, b.Verb) })
	return all
}

// name returns the resource with its group, or that it is every resource.
func (r resource) name() string {
	switch r.Group {
	case "*":
		return "every resource"
	case "":
		return r.Resource
	}
	return r.Resource + "." + r.Group
}

// describe returns the verb of a field, with the source of its parameter in place of one.
func (f *Field) describe() string {
	verb := GeneralVerb + ":" + f.Verb
	if f.Parameter == nil {
		return verb
	}
	what := map[Source]string{MapKey: "KEY", ItemValue: "ITEM", ItemKey: strings.ToUpper(f.Parameter.Key)}[f.Parameter.Source]
	if f.Parameter.Treatment == SlashDelimitedPrefix {
		what += " before /"
	}
	return verb + "(" + what + ")"
}

// describeOrdinary returns whether the ordinary permission contains a field.
func (f *Field) describeOrdinary() string {
	values := strings.Join(f.literals(), ", ")
	switch {
	case f.Excluded:
		return "no"
	case len(f.ExcludedItems) > 0 && values != "":
		return "but " + strings.Join(f.ExcludedItems, ", ") + ": " + values
	case len(f.ExcludedItems) > 0:
		return "but " + strings.Join(f.ExcludedItems, ", ")
	case values != "":
		return "but " + values
	}
	return "yes"
}
