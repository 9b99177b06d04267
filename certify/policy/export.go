package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/scenarios"
)

// Formats are what Export knows.
func Formats() []string { return []string{"rbac", "json", "sar-table", "cedar", "rego", "openfga"} }

// Export renders the policy. The same seed gives the same bytes.
func (p *Policy) Export(format string) ([]byte, error) {
	switch format {
	case "rbac":
		return p.RBAC()
	case "json":
		return p.JSON()
	case "sar-table":
		return p.Table()
	case "cedar":
		return p.Cedar()
	case "rego":
		return p.Rego()
	case "openfga":
		return p.OpenFGA()
	}
	return nil, fmt.Errorf("%q is not a form of the policy (expected one of %s)", format, strings.Join(Formats(), ", "))
}

// document is the policy in JSON.
type document struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Seed       int64             `json:"seed"`
	Grants     []scenarios.Grant `json:"grants"`
}

const documentKind = "CertificationPolicy"

// JSON is the policy as grants.
func (p *Policy) JSON() ([]byte, error) {
	out, err := json.MarshalIndent(document{Version, documentKind, p.Seed, p.Grants}, "", "  ")
	return append(out, '\n'), err
}

// Parse reads a policy that JSON has written.
func Parse(raw []byte) (*Policy, error) {
	var read document
	lines := json.NewDecoder(bytes.NewReader(raw))
	lines.DisallowUnknownFields()
	switch err := lines.Decode(&read); {
	case err != nil:
		return nil, fmt.Errorf("it is not a policy in JSON: %w", err)
	case read.APIVersion != Version || read.Kind != documentKind:
		return nil, fmt.Errorf("it is not a %s of %s", documentKind, Version)
	}
	p := &Policy{Seed: read.Seed, Grants: read.Grants, Probe: newProbe(read.Seed)}
	return p.Index(), nil
}

// RBAC is the policy as roles and bindings, one of each for a grant, with the namespaces that they need.
func (p *Policy) RBAC() ([]byte, error) {
	var out bytes.Buffer
	namespaces := map[string]bool{"": true, "default": true, "kube-system": true, "kube-public": true} // which every cluster has
	for i, g := range p.Grants {
		var all []any
		if !namespaces[g.Namespace] {
			namespaces[g.Namespace] = true
			all = append(all, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": g.Namespace}})
		}
		s := &scenarios.Scenario{ID: "certify", Suffix: fmt.Sprintf("certify-%d-%d", p.Seed, i), Grants: []scenarios.Grant{g}}
		for _, o := range scenarios.RenderRBAC(s)[0].Objects() {
			all = append(all, o)
		}
		for _, o := range all {
			raw, err := yaml.Marshal(o)
			if err != nil {
				return nil, err
			}
			_, _ = fmt.Fprintf(&out, "---\n%s", raw)
		}
	}
	return out.Bytes(), nil
}

// plainWord is what a table can have as it is.
var plainWord = regexp.MustCompile(`^[!-&(-~]+$`)

// Table has one line for each thing that is granted, all combinations written out; "-" stands for what is empty, and
// what has blanks or other than ASCII characters is in quotes, as Go writes them.
// What is on no line gets no opinion.
func (p *Policy) Table() ([]byte, error) {
	var out bytes.Buffer
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row := func(fields ...string) {
		for i := range fields {
			if fields[i] = cmp.Or(fields[i], "-"); !plainWord.MatchString(fields[i]) {
				fields[i] = strconv.QuoteToASCII(fields[i])
			}
		}
		_, _ = fmt.Fprintln(t, strings.Join(fields, "\t"))
	}
	row("USER", "GROUP", "VERB", "APIGROUP", "RESOURCE", "NAME", "NAMESPACE", "PATH")
	for _, g := range p.Grants {
		for _, part := range g.Parts() {
			var group, resource, name, namespace string
			if len(part.Resources) > 0 {
				group, resource, name, namespace = part.APIGroups[0], part.Resources[0], "(any)", cmp.Or(g.Namespace, "(any)")
			}
			if len(part.Names) > 0 {
				name = part.Names[0]
			}
			row(g.Subject.User, g.Subject.Group, part.Verbs[0], group, resource, name, namespace, strings.Join(part.NonResourceURLs, ""))
		}
	}
	err := t.Flush() // before out is looked at
	return out.Bytes(), err
}
