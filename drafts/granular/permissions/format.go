package permissions

import (
	"bytes"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Format returns the set as a file that Parse reads, with a line for each field.
func (s *Set) Format() ([]byte, error) {
	file := *s
	file.Kind = Kind
	var root yaml.Node
	if err := root.Encode(file); err != nil {
		return nil, err
	}
	dropEmpty(&root)
	foldFields(&root)
	var out bytes.Buffer
	to := yaml.NewEncoder(&out)
	to.SetIndent(2)
	if err := to.Encode(&root); err != nil {
		return nil, err
	}
	return out.Bytes(), to.Close()
}

// dropEmpty removes the entries of mappings that say nothing. A group stays, because the core group has no name.
func dropEmpty(n *yaml.Node) {
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); {
		if isEmpty(n.Content[i].Value, n.Content[i+1]) {
			n.Content = slices.Delete(n.Content, i, i+2)
			continue
		}
		i += 2
	}
	for _, child := range n.Content {
		dropEmpty(child)
	}
}

// isEmpty reports whether an entry of a mapping can be left out. Only of excluded it is known that false says nothing.
func isEmpty(key string, value *yaml.Node) bool {
	switch {
	case key == "group":
		return false
	case value.Kind != yaml.ScalarNode:
		return len(value.Content) == 0
	case value.Tag == "!!null" || value.Value == "":
		return true
	}
	return key == "excluded" && value.Value == "false"
}

// foldFields writes the versions, and each field, in one line.
func foldFields(n *yaml.Node) {
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		switch value := n.Content[i+1]; n.Content[i].Value {
		case "versions":
			value.Style = yaml.FlowStyle
		case "fields":
			for _, field := range value.Content {
				field.Style = yaml.FlowStyle
			}
		default:
			foldFields(value)
		}
	}
	for _, item := range n.Content {
		if n.Kind == yaml.SequenceNode {
			foldFields(item)
		}
	}
}
