package markers

import "go.yaml.in/yaml/v3"

// follow returns the node that an alias, or a document, stands for. An alias never names another alias.
func follow(n *yaml.Node) *yaml.Node {
	switch {
	case n == nil:
		return nil
	case n.Kind == yaml.AliasNode:
		return n.Alias
	case n.Kind == yaml.DocumentNode && len(n.Content) == 1:
		return follow(n.Content[0])
	}
	return n
}

// eachEntry calls a function for each entry of a mapping, those of mappings that it merges (<<) included, until it
// returns an error. Other nodes have no entries.
func eachEntry(n *yaml.Node, call func(key, value *yaml.Node) error) error {
	n = follow(n)
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag != "!!merge" {
			if err := call(key, value); err != nil {
				return err
			}
			continue
		}
		for _, merged := range append(items(value), value) {
			if err := eachEntry(merged, call); err != nil {
				return err
			}
		}
	}
	return nil
}

// get returns the value of a key of a mapping, or nil.
func get(n *yaml.Node, key string) (node *yaml.Node) {
	_ = eachEntry(n, func(k, value *yaml.Node) error {
		if k.Value == key {
			node = follow(value)
		}
		return nil
	})
	return node
}

// text returns the scalar that is the value of a key of a mapping, or "".
func text(n *yaml.Node, key string) string {
	if value := get(n, key); value != nil && value.Kind == yaml.ScalarNode {
		return value.Value
	}
	return ""
}

// items returns the items of a sequence.
func items(n *yaml.Node) []*yaml.Node {
	if n = follow(n); n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}
