package markers

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// attachComments adds the comments before each type, and before each field of a struct, in a file.
func attachComments(files *token.FileSet, file *ast.File, to map[ast.Node][]*ast.CommentGroup) {
	last := file.Name.End()
	for _, d := range file.Decls {
		if general, is := d.(*ast.GenDecl); is && general.Tok == token.TYPE {
			attachToTypes(files, file, general, last, to)
		}
		last = d.End()
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, is := n.(*ast.StructType); is {
			last := s.Fields.Opening
			for _, f := range s.Fields.List {
				to[f] = findComments(files, file, last, f.Pos())
				last = f.End()
			}
		}
		return true
	})
}

// attachToTypes adds the comments before the types of one declaration. last is the end of what is declared before it.
func attachToTypes(files *token.FileSet, file *ast.File, d *ast.GenDecl, last token.Pos, to map[ast.Node][]*ast.CommentGroup) {
	if d.Lparen.IsValid() {
		last = d.Lparen
	}
	for _, spec := range d.Specs {
		to[spec] = findComments(files, file, last, spec.Pos())
		last = spec.End()
	}
}

// findComments returns the comments between two places of a file, but for one that begins in the line of the first. All
// of them belong to what follows: an author may leave an empty line between markers and the comment that documentation
// shows.
func findComments(files *token.FileSet, file *ast.File, from, until token.Pos) (out []*ast.CommentGroup) {
	line := files.Position(from).Line
	for _, group := range file.Comments {
		isBetween := group.Pos() >= from && group.End() <= until
		if isBetween && files.Position(group.Pos()).Line > line {
			out = append(out, group)
		}
	}
	return out
}

// commentLine is a line of a comment, with its file and line.
type commentLine struct{ text, at string }

// lines returns the lines of comments.
func (l *loader) lines(groups []*ast.CommentGroup) (out []commentLine) {
	for _, group := range groups {
		for _, c := range group.List {
			first := l.files.Position(c.Pos())
			text := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(c.Text, "//"), "/*"), "*/")
			for i, line := range strings.Split(text, "\n") {
				out = append(out, commentLine{strings.TrimSpace(line), fmt.Sprintf("%s:%d", shorten(first.Filename), first.Line+i)})
			}
		}
	}
	return out
}

// packageLines returns the lines of the comments before the package clauses of a package.
func (l *loader) packageLines(p *goPackage) (out []commentLine) {
	for _, file := range p.files {
		for _, group := range file.Comments {
			if group.End() < file.Package {
				out = append(out, l.lines([]*ast.CommentGroup{group})...)
			}
		}
	}
	return out
}

// checkAttached refuses markers that are before no type and no field, where they would have no effect, and unknown ones
// wherever they are.
func (l *loader) checkAttached(p *goPackage) error {
	isAttached := map[*ast.CommentGroup]bool{}
	for _, groups := range l.comments {
		for _, group := range groups {
			isAttached[group] = true
		}
	}
	for _, file := range p.files {
		for _, group := range file.Comments {
			if err := l.checkGroup(group, isAttached[group]); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkGroup refuses the markers of a comment that are unknown. It refuses all of them if the comment is not attached to
// a type or a field.
func (l *loader) checkGroup(group *ast.CommentGroup, isAttached bool) error {
	for _, line := range l.lines([]*ast.CommentGroup{group}) {
		if !isMarker(line.text) {
			continue
		}
		if _, err := parseMarker(line.text); err != nil {
			return fmt.Errorf("%s: %w", line.at, err)
		}
		if !isAttached {
			return fmt.Errorf("%s: %s has no effect here, expected it in a line before a type or a field", line.at, line.text)
		}
	}
	return nil
}

// shorten returns the name of a file relative to the working directory, if the file is below it.
func shorten(name string) string {
	dir, err := os.Getwd()
	if err != nil {
		return name
	}
	short, err := filepath.Rel(dir, name)
	if err != nil || strings.HasPrefix(short, "..") {
		return name
	}
	return filepath.ToSlash(short)
}
