package record

import (
	"bytes"
	"errors"
	"regexp"
	"strings"

	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// DecodeStrictly decodes JSON that every reader understands in the same way. A field that is unknown, duplicate or
// spelled with other capitals is an error, and so is anything after the value.
func DecodeStrictly(data []byte, into any) error {
	strict, err := sigsjson.UnmarshalStrict(data, into)
	return errors.Join(append(strict, err)...)
}

// yamlDocument matches the beginning or end of one YAML document among several. Only the first would be read.
var yamlDocument = regexp.MustCompile(`(?m)^(---|\.\.\.)`)

// DecodeYAML does the same as DecodeStrictly for one YAML document, which may be JSON.
func DecodeYAML(data []byte, into any) error {
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return DecodeStrictly(data, into)
	}
	if yamlDocument.Match(data) {
		return errors.New("it is more than one document")
	}
	raw, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return errors.New(strings.Join(strings.Fields(err.Error()), " "))
	}
	return DecodeStrictly(raw, into)
}
