package permissions

import (
	"fmt"
	"maps"
	"slices"
)

// Set is descriptions of resources.
type Set struct{ resources []resource }

// Node is a place in an object: a field, or every item of a map or list.
type Node struct {
	// Field is what is described here, or nil.
	Field *Field
	// Children are by name; "*" stands for every item, and then is alone.
	Children map[string]*Node
}

// Child is the node of a field or an item; nil if nothing is described there or below.
func (n *Node) Child(name string) *Node {
	if items := n.Items(); items != nil || n == nil {
		return items
	}
	return n.Children[name]
}

// Items is the node of every item of a map or list, or nil.
func (n *Node) Items() *Node {
	if n == nil {
		return nil
	}
	return n.Children["*"]
}

// Excluded says whether something in the tree is not contained in the ordinary permission.
func (n *Node) Excluded() bool {
	return n.Field != nil && n.Field.Excluded || slices.ContainsFunc(slices.Collect(maps.Values(n.Children)), (*Node).Excluded)
}

// Tree is what is described of a resource in one version: that of every resource, and its own.
func (s *Set) Tree(group, version, resource string) *Node {
	root, _ := s.tree(group, version, resource) // checked when it was loaded
	return root
}

func (s *Set) tree(group, version, resource string) (*Node, error) {
	root := &Node{}
	for _, f := range s.Fields(group, version, resource) {
		if err := root.add(f); err != nil {
			return root, fmt.Errorf("%s in version %s: %w", resource, version, err)
		}
	}
	return root, nil
}

// Fields are the descriptions that apply to a resource in one version.
func (s *Set) Fields(group, version, name string) (out []*Field) {
	for _, r := range s.resources {
		if (r.Group == "*" || r.Group == group && r.Resource == name) &&
			(slices.Contains(r.Versions, version) || slices.Contains(r.Versions, "*")) {
			out = append(out, r.Fields...)
		}
	}
	return out
}

// check finds contradictions in every tree that can be asked for.
func (s *Set) check() error {
	for _, r := range s.resources {
		for _, version := range r.Versions {
			if _, err := s.tree(r.Group, version, r.Resource); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *Node) add(f *Field) error {
	for _, s := range f.Segments() {
		if n.Children == nil {
			n.Children = map[string]*Node{}
		}
		if n.Children[s] == nil {
			if len(n.Children) > 0 && (s == "*" || n.Children["*"] != nil) {
				return fmt.Errorf("path %q: names and * in one place, expected either", f.Path)
			}
			n.Children[s] = &Node{}
		}
		n = n.Children[s]
	}
	if n.Field != nil {
		return fmt.Errorf("path %q: described twice", f.Path)
	}
	n.Field = f
	return nil
}
