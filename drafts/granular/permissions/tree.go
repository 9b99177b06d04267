package permissions

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Node is a place in an object: a field, or every item of a map or list.
type Node struct {
	Field    *Field           // the description of this place, or nil
	Children map[string]*Node // by name; "*" stands for every item, and has no siblings
}

// Child returns the node of a field or an item. It is nil if nothing is described there or below.
func (n *Node) Child(name string) *Node {
	if items := n.Items(); items != nil || n == nil {
		return items
	}
	return n.Children[name]
}

// Items returns the node of every item of a map or list, or nil.
func (n *Node) Items() *Node {
	if n == nil {
		return nil
	}
	return n.Children["*"]
}

// Excluded reports whether something in the tree is not contained in the ordinary permission.
func (n *Node) Excluded() bool {
	if n.Field != nil && n.Field.excludes() {
		return true
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(n.Children)), (*Node).Excluded)
}

// excludes reports whether the ordinary permission does not contain the field, or some items or values of it.
func (f *Field) excludes() bool {
	return f.Excluded || f.ExcludedItems != nil || f.ExcludedValues != nil
}

// Tree returns the descriptions of a resource in one version: those of every resource, and its own.
func (s *Set) Tree(group, version, resource string) *Node {
	root, _ := s.buildTree(group, version, resource) // errors were found when the set was loaded
	return root
}

func (s *Set) buildTree(group, version, resource string) (*Node, error) {
	root := &Node{}
	for _, f := range s.Fields(group, version, resource) {
		if err := root.add(f); err != nil {
			return root, fmt.Errorf("%s in version %s: %w", resource, version, err)
		}
	}
	return root, nil
}

// Fields returns the descriptions that apply to a resource in one version, with those of what it embeds.
func (s *Set) Fields(group, version, name string) (out []*Field) {
	for _, r := range s.Resources {
		if r.applies(group, version, name) {
			out = append(out, s.fieldsOf(r)...)
		}
	}
	return out
}

// applies reports whether a description is of a resource in one version.
func (r resource) applies(group, version, name string) bool {
	return r.describes(group, name) && r.hasVersion(version)
}

func (r resource) describes(group, name string) bool {
	all := r.Group == "*"
	same := r.Group == group && r.Resource == name
	return all || same
}

func (r resource) hasVersion(version string) bool {
	return slices.Contains(r.Versions, version) || slices.Contains(r.Versions, "*")
}

func (s *Set) check() error {
	for _, r := range s.Resources {
		for _, version := range r.Versions {
			if _, err := s.buildTree(r.Group, version, r.Resource); err != nil {
				return err
			}
		}
	}
	return s.checkVerbs()
}

// add adds a field to the tree.
func (n *Node) add(f *Field) error {
	for _, s := range f.Segments() {
		child, err := n.grow(s)
		if err == nil {
			err = n.checkInside()
		}
		if err != nil {
			return fmt.Errorf("path %q: %w", f.Path, err)
		}
		n = child
	}
	// A second description may say which items of a described field are excluded.
	refines := n.Field != nil && n.Field.Verb == f.Verb && f.ExcludedItems != nil
	if n.Field != nil && !refines {
		return fmt.Errorf("path %q: described twice", f.Path)
	}
	n.Field = f
	if err := n.checkInside(); err != nil {
		return fmt.Errorf("path %q: %w", f.Path, err)
	}
	return nil
}

// checkInside refuses descriptions inside a field with excluded values, because these are scalars.
func (n *Node) checkInside() error {
	hasValues := n.Field != nil && n.Field.ExcludedValues != nil
	if hasValues && len(n.Children) > 0 {
		return fmt.Errorf("excludedValues of %q are scalars, expected nothing described inside it", n.Field.Path)
	}
	return nil
}

// grow returns the child of a name, which is made if it is missing.
func (n *Node) grow(name string) (*Node, error) {
	if child := n.Children[name]; child != nil {
		return child, nil
	}
	hasItems := n.Children["*"] != nil
	hasOthers := len(n.Children) > 0 && name == "*"
	if hasItems || hasOthers {
		return nil, errors.New("names and * in one place, expected either")
	}
	if n.Children == nil {
		n.Children = map[string]*Node{}
	}
	n.Children[name] = &Node{}
	return n.Children[name], nil
}
