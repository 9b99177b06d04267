package certification

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/reports/filing"
)

// Certification is certification.yaml.
type Certification struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Seed       int64     `json:"seed"`
	Results    []Result  `json:"results"`
	Findings   []Finding `json:"findings"`
}

// The files of a bundle.
const (
	certificationFile = "certification.yaml"
	evidenceFile      = "evidence.jsonl"
	maxBundleFile     = 64 << 20
)

// certificationKind is the kind in certification.yaml.
const certificationKind = "ConditionalAuthorizerCertification"

// Folder is a bundle in a folder.
var Folder = filing.Kind{
	Name: "certification of a conditional authorizer", Marker: certificationFile,
	Head:  map[string]string{"kind": certificationKind, "apiVersion": "authzconf.dev/*"},
	Files: []string{evidenceFile},
}

// Certify judges exchanges.
func (b *Book) Certify(all []Exchange) (*Certification, error) {
	findings, results, err := b.Judge(all)
	if err != nil {
		return nil, err
	}
	return &Certification{APIVersion: "authzconf.dev/v1alpha1", Kind: certificationKind, Seed: b.Seed, Results: results, Findings: append([]Finding{}, findings...)}, nil
}

// Granted says whether every level is.
func (c *Certification) Granted() bool {
	for _, r := range c.Results {
		if !r.Granted {
			return false
		}
	}
	return len(c.Results) > 0
}

// Write makes a bundle: the certification, and every answer.
func Write(folder string, c *Certification, all []Exchange) error {
	var evidence bytes.Buffer
	lines := json.NewEncoder(&evidence)
	for _, x := range all {
		if err := lines.Encode(x); err != nil {
			return err
		}
	}
	return Folder.WriteReport(folder, c, map[string][]byte{evidenceFile: evidence.Bytes()})
}

// Read reads a bundle.
func Read(folder string) (*Certification, []Exchange, error) {
	for _, name := range []string{certificationFile, evidenceFile} {
		info, err := os.Stat(filepath.Join(folder, name))
		if err != nil {
			return nil, nil, err
		}
		if !info.Mode().IsRegular() || info.Size() > maxBundleFile {
			return nil, nil, fmt.Errorf("%s is no file of at most %d bytes", name, maxBundleFile)
		}
	}
	raw, err := os.ReadFile(filepath.Join(folder, certificationFile))
	if err != nil {
		return nil, nil, err
	}
	c := &Certification{}
	if err := yaml.UnmarshalStrict(raw, c); err != nil {
		return nil, nil, fmt.Errorf("%s: it is no certification", certificationFile)
	}
	if raw, err = os.ReadFile(filepath.Join(folder, evidenceFile)); err != nil {
		return nil, nil, err
	}
	all, err := ParseEvidence(raw)
	return c, all, err
}

// ParseEvidence reads exchanges, one a line.
func ParseEvidence(raw []byte) (out []Exchange, err error) {
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 4<<20)
	for n := 1; lines.Scan(); n++ {
		var x Exchange
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&x); err != nil {
			return nil, fmt.Errorf("%s:%d: it is no exchange", evidenceFile, n)
		}
		out = append(out, x)
	}
	return out, lines.Err()
}

// Verify judges a bundle's exchanges again, and says what differs from what it
// claims.
func (b *Book) Verify(claimed *Certification, all []Exchange) ([]string, error) {
	again, err := b.Certify(all)
	if err != nil {
		return nil, err
	}
	var out []string
	for name, pair := range map[string][2]any{"results": {claimed.Results, again.Results}, "findings": {claimed.Findings, again.Findings}, "kind": {claimed.Kind, again.Kind}, "apiVersion": {claimed.APIVersion, again.APIVersion}} {
		was, _ := json.Marshal(pair[0])
		is, _ := json.Marshal(pair[1])
		if !bytes.Equal(was, is) {
			out = append(out, fmt.Sprintf("%s: %s, and the evidence says %s", name, was, is))
		}
	}
	return out, nil
}
