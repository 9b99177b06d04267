package markers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// schemaPrefix is the prefix of markers in the schema of a CustomResourceDefinition.
const schemaPrefix = "x-kubernetes-permission-"

var crdDialect = dialect{
	prefix:   schemaPrefix,
	identity: "x-kubernetes-list-type: map with x-kubernetes-list-map-keys, or x-kubernetes-list-type: set",
	keys:     "beside additionalProperties",
}

// ReadCRDs returns the descriptions in the schemas of the CustomResourceDefinitions in a YAML file, which may have other
// documents as well. name is for messages.
func ReadCRDs(name string, data []byte) (*permissions.Set, error) {
	reader := &crdReader{name: name, read: map[*yaml.Node]bool{}, ancestors: map[*yaml.Node]bool{}}
	var roots []root
	for documents := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		more, err := reader.readDocument(&document)
		if err != nil {
			return nil, err
		}
		roots = append(roots, more...)
	}
	if len(roots) == 0 {
		return nil, fmt.Errorf("%s: expected a CustomResourceDefinition, with versions", name)
	}
	set, err := newSet("From the schemas of CustomResourceDefinitions.", roots, crdDialect)
	if errors.Is(err, ErrNothing) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return set, err
}

// crdReader makes schemas of those in a CustomResourceDefinition.
type crdReader struct {
	name string
	// read are the keys that are markers and were read, to find those that stand where they have no effect.
	read map[*yaml.Node]bool
	// ancestors are the nodes that contain the one that is being read. An alias can stand for one of them.
	ancestors map[*yaml.Node]bool
}

// readDocument returns the schemas in a document, one for each version. A document of another kind has none.
func (r *crdReader) readDocument(document *yaml.Node) (roots []root, err error) {
	crd := follow(document)
	if text(crd, "kind") != "CustomResourceDefinition" {
		return nil, nil
	}
	if version := text(crd, "apiVersion"); version != "apiextensions.k8s.io/v1" {
		return nil, fmt.Errorf("%s: apiVersion is %q, expected apiextensions.k8s.io/v1", r.at(crd), version)
	}
	spec := get(crd, "spec")
	group, resource := text(spec, "group"), text(get(spec, "names"), "plural")
	if group == "" || resource == "" {
		return nil, fmt.Errorf("%s: expected spec.group and spec.names.plural", r.at(crd))
	}
	for _, version := range items(get(spec, "versions")) {
		s := &schema{marks: marks{}}
		if n := get(get(version, "schema"), "openAPIV3Schema"); n != nil {
			if s, err = r.readSchema(n); err != nil {
				return nil, err
			}
		}
		roots = append(roots, root{group: group, version: text(version, "name"), resource: resource, schema: s, at: r.at(version)})
	}
	return roots, r.checkRead(crd, map[*yaml.Node]bool{})
}

// readSchema returns a schema, with everything in it.
func (r *crdReader) readSchema(n *yaml.Node) (s *schema, err error) {
	n = follow(n)
	if r.ancestors[n] {
		return nil, fmt.Errorf("%s: the alias stands for what it is in, expected a schema that has an end", r.at(n))
	}
	r.ancestors[n] = true
	defer delete(r.ancestors, n)
	s = &schema{marks: marks{}, atomic: text(n, "x-kubernetes-map-type") == "atomic"}
	if err := r.addMarkers(s, n); err != nil {
		return nil, err
	}
	err = eachEntry(get(n, "properties"), func(key, value *yaml.Node) error {
		property, err := r.readSchema(value)
		s.fields = append(s.fields, field{key.Value, property})
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, r.addItems(s, n)
}

// addItems adds the schema of the items of a map or list.
func (r *crdReader) addItems(s *schema, n *yaml.Node) (err error) {
	if list := follow(get(n, "items")); list != nil {
		s.itemsBy = map[string]permissions.Source{"map": permissions.ItemKey, "set": permissions.ItemValue}[text(n, "x-kubernetes-list-type")]
		for _, key := range items(get(n, "x-kubernetes-list-map-keys")) {
			s.listKeys = append(s.listKeys, key.Value)
		}
		s.items, err = r.readSchema(list)
		return err
	}
	if values := follow(get(n, "additionalProperties")); values != nil && values.Kind == yaml.MappingNode {
		s.itemsBy, s.keySource = permissions.MapKey, s.marks[parameterSource]
		s.items, err = r.readSchema(values)
	}
	return err
}

// addMarkers adds the markers of a schema.
func (r *crdReader) addMarkers(s *schema, n *yaml.Node) error {
	err := eachEntry(n, func(key, value *yaml.Node) error {
		after, isMarker := strings.CutPrefix(key.Value, schemaPrefix)
		if !isMarker {
			return nil
		}
		name := markerName(after)
		r.read[key] = true
		if err := checkName(schemaPrefix, name); err != nil {
			return fmt.Errorf("%s: %w", r.at(key), err)
		}
		text, err := r.readValue(name, key, follow(value))
		if err != nil {
			return err
		}
		if err := checkValue(schemaPrefix, name, text); err != nil {
			return fmt.Errorf("%s: %w", r.at(key), err)
		}
		return s.marks.add(name, text, r.at(key), schemaPrefix)
	})
	s.ownSource = s.marks[parameterSource]
	return err
}

// readValue returns the value of a marker as text, as a comment has it.
func (r *crdReader) readValue(name markerName, key, value *yaml.Node) (string, error) {
	isTrue := value.Tag == "!!bool" && value.Value == "true"
	switch {
	case name == excludedValues:
		var list []any
		if err := value.Decode(&list); err != nil {
			return "", fmt.Errorf("%s: %s is no list, expected %s", r.at(key), key.Value, forms[name].expected)
		}
		text, err := json.Marshal(list)
		return string(text), err
	case name == permissionExcluded && !isTrue:
		return "", fmt.Errorf("%s: %s is %q, expected true, or no such line", r.at(key), key.Value, value.Value)
	case name != permissionExcluded && value.Tag != "!!str":
		return "", fmt.Errorf("%s: %s is %q, expected a string", r.at(key), key.Value, value.Value)
	}
	return value.Value, nil
}

// checkRead refuses markers in a document that were not read, because they stand where a field cannot be described.
func (r *crdReader) checkRead(n *yaml.Node, checked map[*yaml.Node]bool) error {
	n = follow(n)
	if n == nil || checked[n] {
		return nil
	}
	checked[n] = true
	err := eachEntry(n, func(key, value *yaml.Node) error {
		if strings.HasPrefix(key.Value, schemaPrefix) && !r.read[key] {
			return fmt.Errorf(
				"%s: %s has no effect here, expected it in the schema of properties, items or additionalProperties",
				r.at(key),
				key.Value,
			)
		}
		return r.checkRead(value, checked)
	})
	for _, item := range items(n) {
		if err == nil {
			err = r.checkRead(item, checked)
		}
	}
	return err
}

// at returns the file and the line of a node.
func (r *crdReader) at(n *yaml.Node) string { return fmt.Sprintf("%s:%d", r.name, n.Line) }
