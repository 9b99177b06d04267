package markers

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"
)

// predeclared are the types that Go predeclares, as far as fields have them.
var predeclared = []string{
	"any", "bool", "byte", "complex64", "complex128", "error", "float32", "float64", "int", "int8", "int16", "int32",
	"int64", "rune", "string", "uint", "uint8", "uint16", "uint32", "uint64", "uintptr",
}

// find returns the type that a name in a declaration stands for. It is nil for a type that Go predeclares.
func (l *loader) find(name string, in *typeDeclaration) (*typeDeclaration, error) {
	if t := in.pkg.types[name]; t != nil {
		return t, nil
	}
	for _, spec := range in.file.Imports {
		isDot := spec.Name != nil && spec.Name.Name == "."
		if !isDot {
			continue
		}
		t, err := l.findIn(findPackage(spec, in.pkg), name)
		if t != nil || err != nil {
			return t, err
		}
	}
	if slices.Contains(predeclared, name) {
		return nil, nil
	}
	return nil, fmt.Errorf("type %s is not declared in package %s", name, in.pkg.PkgPath)
}

// findImported returns the type of another package that a declaration names. It is nil for a type of the standard
// library, which has no markers.
func (l *loader) findImported(qualifier, name string, in *typeDeclaration) (*typeDeclaration, error) {
	for _, spec := range in.file.Imports {
		p := findPackage(spec, in.pkg)
		if p == nil || localName(spec, p) != qualifier {
			continue
		}
		t, err := l.findIn(p, name)
		if t == nil && err == nil && !isStandard(p) {
			err = fmt.Errorf("type %s is not declared in package %s", name, p.PkgPath)
		}
		return t, err
	}
	return nil, fmt.Errorf("package %s is not imported, or was not found", qualifier)
}

// findIn returns a type of a package. It is nil if the package does not declare it, or is of the standard library.
func (l *loader) findIn(p *packages.Package, name string) (*typeDeclaration, error) {
	if p == nil || isStandard(p) {
		return nil, nil
	}
	parsed, err := l.parse(p)
	if err != nil {
		return nil, err
	}
	return parsed.types[name], nil
}

// findPackage returns the package that an import declaration of another one names, or nil.
func findPackage(spec *ast.ImportSpec, importer *goPackage) *packages.Package {
	path, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return nil
	}
	return importer.Imports[path]
}

// localName returns the name by which a file refers to a package that it imports.
func localName(spec *ast.ImportSpec, p *packages.Package) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	return p.Name
}

// isStandard reports whether a package is one of the standard library: it belongs to no module, and the first part of
// its path is no domain.
func isStandard(p *packages.Package) bool {
	first, _, _ := strings.Cut(p.PkgPath, "/")
	return p.Module == nil && !strings.Contains(first, ".")
}
