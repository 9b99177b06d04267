package markers

import (
	"fmt"
	"go/ast"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// typeReader makes schemas of Go types.
type typeReader struct {
	*loader
	// ancestors are the types that contain the one that is being read, each with the place where it contains itself, or "".
	ancestors map[*typeDeclaration]string
}

// read returns the schema of a type as a declaration writes it.
func (r *typeReader) read(expression ast.Expr, in *typeDeclaration) (*schema, error) {
	switch e := expression.(type) {
	case *ast.ParenExpr:
		return r.read(e.X, in)
	case *ast.StarExpr:
		return r.read(e.X, in)
	case *ast.Ident:
		t, err := r.find(e.Name, in)
		return r.readNamed(t, err, e)
	case *ast.SelectorExpr:
		qualifier, _ := e.X.(*ast.Ident)
		t, err := r.findImported(qualifier.Name, e.Sel.Name, in)
		return r.readNamed(t, err, e)
	case *ast.ArrayType:
		return r.readList(e, in)
	case *ast.MapType:
		return r.readMap(e, in)
	case *ast.StructType:
		return r.readStruct(e, in)
	case *ast.IndexExpr, *ast.IndexListExpr:
		return nil, fmt.Errorf("%s: a generic type, expected one without type parameters", r.at(e))
	}
	return &schema{marks: marks{}}, nil // interfaces, functions and channels have no fields
}

// readNamed returns the schema of a type that was found by its name, or the error of finding it. Without a type it is a
// scalar. A type that contains itself has no fields and no items the second time.
func (r *typeReader) readNamed(t *typeDeclaration, err error, use ast.Node) (*schema, error) {
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", r.at(use), err)
	case t == nil:
		return &schema{marks: marks{}}, nil
	case t.TypeParams != nil:
		return nil, fmt.Errorf("%s: type %s is generic, expected one without type parameters", r.at(use), t.Name.Name)
	}
	if _, isAncestor := r.ancestors[t]; isAncestor {
		r.ancestors[t] = r.at(use)
		return &schema{marks: marks{}}, nil
	}
	return r.readDeclared(t)
}

// readDeclared returns the schema of a type that has a name, with its markers and those of the type that it is made of.
func (r *typeReader) readDeclared(t *typeDeclaration) (*schema, error) {
	r.ancestors[t] = ""
	defer delete(r.ancestors, t)
	s, err := r.read(t.Type, t)
	if err != nil {
		return nil, err
	}
	hasPermission := s.hasPermissionBelow()
	if err := r.addMarkers(s, t.TypeSpec, false); err != nil {
		return nil, err
	}
	_, hasParameter := s.marks[parameterizedBy]
	hasNoEnd := hasPermission || hasParameter
	if again := r.ancestors[t]; again != "" && hasNoEnd {
		return nil, fmt.Errorf(
			"%s: type %s contains itself, and has permissions in it: expected them around it only, because a path has an end",
			again,
			t.Name.Name,
		)
	}
	return s, nil
}

// readList returns the schema of a slice or array. Bytes are a scalar.
func (r *typeReader) readList(e *ast.ArrayType, in *typeDeclaration) (*schema, error) {
	if element, is := e.Elt.(*ast.Ident); is && slices.Contains([]string{"byte", "uint8"}, element.Name) {
		return &schema{marks: marks{}}, nil
	}
	items, err := r.read(e.Elt, in)
	return &schema{marks: marks{}, items: items}, err
}

// readMap returns the schema of a map. The type of its keys can be the source of a parameter.
func (r *typeReader) readMap(e *ast.MapType, in *typeDeclaration) (*schema, error) {
	keys, err := r.read(e.Key, in)
	if err != nil {
		return nil, err
	}
	items, err := r.read(e.Value, in)
	return &schema{marks: marks{}, items: items, itemsBy: permissions.MapKey, keySource: keys.marks[parameterSource]}, err
}

// readStruct returns the schema of a struct. The fields of a struct that it embeds without a name are its own.
func (r *typeReader) readStruct(e *ast.StructType, in *typeDeclaration) (*schema, error) {
	out := &schema{marks: marks{}}
	for _, f := range e.Fields.List {
		names := jsonNames(f)
		if len(names) == 0 {
			if err := r.refuseMarkers(f); err != nil {
				return nil, err
			}
			continue
		}
		for _, name := range names {
			if err := r.addField(out, name, f, in); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// addField adds a field of Go to the schema of its struct. Without a name the field is a struct that is inlined.
func (r *typeReader) addField(to *schema, name string, f *ast.Field, in *typeDeclaration) error {
	s, err := r.read(f.Type, in)
	if err != nil {
		return err
	}
	if err := r.addMarkers(s, f, true); err != nil {
		return err
	}
	if name != "" {
		to.fields = append(to.fields, field{name, s})
		return nil
	}
	if m, has := s.marks[permissionVerb]; has {
		return fmt.Errorf(
			"%s: %sverb on %s, whose fields are inlined at %s: expected it on fields of the struct, because the struct has no path of its own",
			m.at,
			commentPrefix,
			typeName(f.Type),
			r.at(f),
		)
	}
	to.fields = append(to.fields, s.fields...)
	return nil
}

// refuseMarkers refuses the markers of a field that is not in JSON.
func (r *typeReader) refuseMarkers(f *ast.Field) error {
	for _, line := range r.lines(r.comments[f]) {
		if isMarker(line.text) {
			return fmt.Errorf("%s: %s has no effect, expected it on a field that JSON has", line.at, line.text)
		}
	}
	return nil
}

// jsonNames returns the names that a field of Go has in JSON. A field without a name of its own, whose fields are
// inlined, has the name "". A field that JSON leaves out has none.
func jsonNames(f *ast.Field) []string {
	name, _, _ := strings.Cut(tagOf(f), ",")
	isEmbedded := len(f.Names) == 0
	switch {
	case tagOf(f) == "-":
		return nil
	case isEmbedded:
		return []string{name}
	}
	var out []string
	for _, n := range f.Names {
		if !n.IsExported() {
			continue
		}
		if name != "" {
			return []string{name}
		}
		out = append(out, n.Name)
	}
	return out
}

// tagOf returns the part of a field's tag that is for JSON.
func tagOf(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	text, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		return ""
	}
	return reflect.StructTag(text).Get("json")
}

// typeName returns the name of a type without its package, or "" for a type that has none.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// topology matches the markers by which Kubernetes says how lists, maps and structs are merged.
var topology = regexp.MustCompile(`^\+(listType|listMapKey|mapType|structType)=(\w+)$`)

// addMarkers adds the markers of a field, or of the declaration of a type, to its schema.
func (r *typeReader) addMarkers(s *schema, n ast.Node, isField bool) error {
	own := marks{}
	keys := []string{}
	for _, line := range r.lines(r.comments[n]) {
		if t := topology.FindStringSubmatch(line.text); t != nil && t[1] == "listMapKey" {
			keys = append(keys, t[2])
		} else if t != nil {
			s.addTopology(t[1], t[2])
		}
		if !isMarker(line.text) {
			continue
		}
		m, err := parseMarker(line.text)
		if err != nil {
			return fmt.Errorf("%s: %w", line.at, err)
		}
		if err := own.add(m.name, m.value, line.at, commentPrefix); err != nil {
			return err
		}
	}
	if len(keys) > 0 {
		s.listKeys = keys
	}
	if isField {
		s.ownSource = own[parameterSource]
	}
	if err := own.merge(s.marks); err != nil {
		return err
	}
	s.marks = own
	return nil
}

// addTopology adds what one marker says about how a list, map or struct is merged. What does not concern the type has
// no effect, as for Kubernetes.
func (s *schema) addTopology(about, value string) {
	isList := s.items != nil && s.itemsBy != permissions.MapKey
	switch {
	case about != "listType":
		s.atomic = value == "atomic"
	case isList:
		s.itemsBy = map[string]permissions.Source{"map": permissions.ItemKey, "set": permissions.ItemValue}[value]
	}
}

// at returns the file and the line of something in Go.
func (r *typeReader) at(n ast.Node) string {
	position := r.files.Position(n.Pos())
	return fmt.Sprintf("%s:%d", shorten(position.Filename), position.Line)
}
