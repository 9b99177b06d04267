package policy

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf16"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/scenarios"
)

// Formats are what Export knows.
func Formats() []string {
	return []string{"rbac", "json", "sar-table", "cedar", "cedar-k8s", "rego", "opa", "openfga"}
}

// folders are the files beside the policy, of the forms that are several files.
//
//go:embed folders
var folders embed.FS

// Export renders the policy. The same seed gives the same bytes. A form that is several files has them by their
// names; any other has one, without a name.
func (p *Policy) Export(format string) (map[string][]byte, error) {
	render := map[string]func() ([]byte, error){
		"rbac": p.RBAC, "json": p.JSON, "sar-table": p.Table, "cedar": p.Cedar, "rego": p.Rego, "opa": p.Rego, "openfga": p.OpenFGA,
	}[format]
	files := map[string][]byte{}
	var err error
	switch {
	case format == "cedar-k8s":
		files, err = p.CedarK8s()
	case render != nil:
		files[map[string]string{"opa": "policy.rego"}[format]], err = render()
	default:
		return nil, fmt.Errorf("%q is not a form of the policy (expected one of %s)", format, strings.Join(Formats(), ", "))
	}
	beside, _ := fs.Glob(folders, "folders/"+format+"/*") // fails for bad patterns only
	for _, name := range beside {
		raw, readErr := folders.ReadFile(name)
		files[path.Base(name)], err = append(raw, files[path.Base(name)]...), errors.Join(err, readErr)
	}
	return files, err
}

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
// what has blanks or other than ASCII characters is in quotes, as Go writes them. What is on no line gets no opinion.
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

//go:embed rules.rego
var regoRules string

// Rego is the policy as a module for Open Policy Agent 1.0 and later. Its input is the spec of a v1
// SubjectAccessReview; where data.authzconf.certification.allow is false there is no opinion.
func (p *Policy) Rego() ([]byte, error) {
	raw, err := json.MarshalIndent(map[string]any{"by_user": p.byUser, "by_group": p.byGroup}, "", "\t")
	// Rego takes no byte-order mark, not even within a string.
	return fmt.Appendf(nil, "# The policy of certification, seed %d.\n%s\ngrants := %s\n", p.Seed, regoRules, asciiJSON(raw)), err
}

func asciiJSON(raw []byte) string {
	var out strings.Builder
	for _, r := range string(raw) {
		if r < utf8.RuneSelf {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			_, _ = fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.String()
}
