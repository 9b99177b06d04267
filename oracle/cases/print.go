package cases

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/authzconf/authzconf/scenarios"
)

// Print renders a scenario as a file that loads as the same, without what is derived. Comments go on top, a line each.
func Print(s *scenarios.Scenario, comments ...string) ([]byte, error) {
	raw, err := YAML(s.Lean(), comments...)
	if err != nil {
		return nil, fmt.Errorf("printing scenario %s: %w", s.ID, err)
	}
	return raw, nil
}

// YAML renders a value as a file, by way of JSON: it keeps the order of fields, and tells empty lists from none.
func YAML(value any, comments ...string) ([]byte, error) {
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, err
	}
	var tree yaml.Node
	if err := yaml.Unmarshal(raw.Bytes(), &tree); err != nil {
		return nil, err
	}
	plain(&tree)
	var out bytes.Buffer
	for _, c := range comments {
		out.WriteString("# " + c + "\n")
	}
	lines := yaml.NewEncoder(&out)
	lines.SetIndent(2)
	err := lines.Encode(&tree)
	return out.Bytes(), err
}

func plain(n *yaml.Node) {
	n.Style = 0
	for _, item := range n.Content {
		plain(item)
	}
}
