// Package markers reads which permission guards which field from where KEP-3617 (Fine-Grained Authorization) has its
// author write it ("Permission Description System"): from markers in the comments of Go types, and from the schemas of
// CustomResourceDefinitions.
//
//	// +permission-verb:"specification"                      on a type or a field
//	// +permission-parameter-source:"label-key"              on the type of the keys of a map
//	// +permission-parameterized-by:"label-key"              beside a verb
//	// +permission-parameter-treatment:slash-delimited-prefix  beside it
//
// Some of what is read here is not in the KEP:
//
//   - +permission-excluded takes the field out of the ordinary permission. The KEP wants the schema to say so, and has
//     no marker for it. +permission-excluded-values:[true] takes out changes to some values alone.
//   - A parameter can also come from lists: its source is then a field by which the items are identified (+listType=map,
//     +listMapKey), or the type of the items (+listType=set). The KEP leaves both as a TODO.
//   - In a schema every marker begins with x-kubernetes-permission- instead. The KEP has x-kubernetes-permission-verb
//     alone. A schema has no place for the keys of a map, so their parameter-source stands at the map.
//
// Go packages are found by golang.org/x/tools/go/packages, which is a dependency already and asks the go command, so that
// build tags, modules, workspaces and vendor folders mean what they mean elsewhere. The rest is syntax: no types are
// checked, so a package can be read before its generated half is there. The two readers of markers that Kubernetes has
// were the alternatives. That of sigs.k8s.io/controller-tools takes what is before = as the name of a marker, and the KEP
// writes values after a colon. That of k8s.io/gengo checks the types of everything that is imported, and keeps comments
// without the file and the line that an error here has to name. Neither is a dependency yet.
package markers

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// ErrNothing is returned if there are resources, and no permission is on any of their fields.
var ErrNothing = errors.New("no field has a permission")

var typeDialect = dialect{
	prefix:   commentPrefix,
	identity: "+listType=map with +listMapKey, or +listType=set",
	keys:     "on the type of the keys of a map",
}

// ReadTypes returns the descriptions that the Go types in a folder, and in the folders below it, have in their markers.
// A resource is a struct that embeds TypeMeta and ObjectMeta, or has +kubebuilder:object:root=true or +genclient. Its
// group is the +groupName of its package, its version the name of the package, and its name the one of
// +kubebuilder:resource:path or else the plural of its type.
func ReadTypes(dir string) (*permissions.Set, error) {
	l := &loader{files: token.NewFileSet(), parsed: map[string]*goPackage{}, comments: map[ast.Node][]*ast.CommentGroup{}}
	pkgs, err := l.load(dir)
	if err != nil {
		return nil, err
	}
	reader := &typeReader{loader: l, ancestors: map[*typeDeclaration]string{}}
	var roots []root
	for _, p := range pkgs {
		more, err := reader.readRoots(p)
		if err != nil {
			return nil, err
		}
		roots = append(roots, more...)
	}
	for _, path := range slices.Sorted(maps.Keys(l.parsed)) {
		if err := l.checkAttached(l.parsed[path]); err != nil {
			return nil, err
		}
	}
	if len(roots) == 0 {
		return nil, errors.New("no Go type is a resource, expected a struct that embeds TypeMeta and ObjectMeta, or has +kubebuilder:object:root=true")
	}
	return newSet("From the markers of Go types.", roots, typeDialect)
}

// newSet returns the descriptions of resources.
func newSet(description string, roots []root, d dialect) (*permissions.Set, error) {
	all, places, err := describe(roots, d)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w, expected %sverb on one", ErrNothing, d.prefix)
	}
	return permissions.Describe(description, all, func(path string) string { return places[path] })
}
