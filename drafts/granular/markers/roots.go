package markers

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	groupMarker    = regexp.MustCompile(`^\+groupName=(.*)$`)
	resourceMarker = regexp.MustCompile(`^\+kubebuilder:resource:(?:.*,)?path="?([a-z][a-z0-9-]*)"?(?:,.*)?$`)
)

// readRoots returns the schemas of the types in a package that are resources.
func (r *typeReader) readRoots(p *goPackage) (roots []root, err error) {
	for _, name := range p.declared {
		t := p.types[name]
		if !r.isRoot(t) {
			continue
		}
		s, err := r.readDeclared(t)
		if err != nil {
			return nil, err
		}
		group, noGroup := r.groupOf(p)
		roots = append(roots, root{group: group, noGroup: noGroup, version: p.Name, resource: r.resourceOf(t), schema: s, at: r.at(t)})
	}
	return roots, nil
}

// isRoot reports whether a type is that of a resource. A list of resources is none.
func (r *typeReader) isRoot(t *typeDeclaration) bool {
	isMarked := slices.ContainsFunc(r.lines(r.comments[t.TypeSpec]), func(line commentLine) bool {
		return line.text == "+genclient" || line.text == "+kubebuilder:object:root=true"
	})
	s, isStruct := t.Type.(*ast.StructType)
	if !isStruct {
		return isMarked
	}
	isObject := embeds(s, "TypeMeta") && embeds(s, "ObjectMeta")
	isResource := isMarked || isObject
	return isResource && !embeds(s, "ListMeta")
}

// embeds reports whether a struct embeds a type of this name, of any package.
func embeds(s *ast.StructType, name string) bool {
	return slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool {
		return len(f.Names) == 0 && typeName(f.Type) == name
	})
}

// groupOf returns the API group of a package.
func (r *typeReader) groupOf(p *goPackage) (string, error) {
	for _, line := range r.packageLines(p) {
		if m := groupMarker.FindStringSubmatch(line.text); m != nil {
			return strings.Trim(m[1], `"`), nil
		}
	}
	return "", fmt.Errorf(
		"%s: package %s has no API group, expected +groupName=GROUP in the comment before its package clause",
		r.at(p.files[0].Name),
		p.Name,
	)
}

// resourceOf returns the name of the resource whose objects have a type: the one that a marker gives, or the plural.
func (r *typeReader) resourceOf(t *typeDeclaration) string {
	for _, line := range r.lines(r.comments[t.TypeSpec]) {
		if m := resourceMarker.FindStringSubmatch(line.text); m != nil {
			return m[1]
		}
	}
	plural, _ := meta.UnsafeGuessKindToResource(apischema.GroupVersionKind{Kind: t.Name.Name})
	return plural.Resource
}
