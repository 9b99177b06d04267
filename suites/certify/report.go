package certify

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/authorizers/policy"
	"github.com/authzconf/authzconf/scenarios"
)

// Product is what is certified, in its vendor's words.
type Product struct {
	Vendor  string `json:"vendor,omitempty"`
	Name    string `json:"product,omitempty"`
	Version string `json:"version,omitempty"`
	Contact string `json:"contact,omitempty"`
}

// Certification is certification.yaml.
type Certification struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Product
	// Mode is how the authorizer was reached.
	Mode string `json:"mode"`
	Seed int64  `json:"seed"`
	// SuiteDigest is that of all that was asked, PolicyDigest that of the policy
	// as JSON.
	SuiteDigest  string    `json:"suiteDigest"`
	PolicyDigest string    `json:"policyDigest"`
	Started      time.Time `json:"started"`
	// Levels are those that are granted; Results say why the others are not.
	Levels   []Level   `json:"levels"`
	Results  []Result  `json:"results"`
	Findings []Finding `json:"findings"`
}

// The files of a bundle.
const (
	certificationFile = "certification.yaml"
	evidenceFile      = "evidence.jsonl"
	summaryFile       = "summary.md"
	maxBundleFile     = 64 << 20
)

// Certification is what the run shows.
func (r *Run) Certification(b *Book, p Product) *Certification {
	c := &Certification{
		APIVersion: policy.Version, Kind: "AuthorizerCertification", Product: p, Mode: "direct", Seed: b.Policy.Seed,
		SuiteDigest: b.Digest, PolicyDigest: b.Policy.Digest(), Started: r.Started.UTC().Truncate(time.Second),
		Results: r.Results, Findings: append([]Finding{}, r.Findings...), Levels: []Level{},
	}
	for _, result := range r.Results {
		if result.Granted {
			c.Levels = append(c.Levels, result.Level)
		}
		if result.Level == InCluster {
			c.Mode = "direct and in-cluster"
		}
	}
	return c
}

// Write makes a bundle: the certification, a summary, and every answer.
func Write(folder string, c *Certification, answers []Answer) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var evidence bytes.Buffer
	lines := json.NewEncoder(&evidence)
	for _, a := range answers {
		if err := lines.Encode(a); err != nil {
			return err
		}
	}
	certification, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{certificationFile: certification, evidenceFile: evidence.Bytes(), summaryFile: []byte(c.Summary())} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Summary is the certification for a person, in Markdown.
func (c *Certification) Summary() string {
	var out strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&out, format+"\n", args...) }
	line("# Certification of %s", strings.TrimSpace(c.Vendor+" "+c.Name+" "+c.Version))
	line("\nSeed %d, suite %.12s, policy %.12s, mode %s.\n", c.Seed, c.SuiteDigest, c.PolicyDigest, c.Mode)
	line("| level | granted | reviews | findings |\n|---|---|---|---|")
	for _, r := range c.Results {
		line("| %s | %s | %d of %d | %d |", r.Level, map[bool]string{true: "yes", false: "no"}[r.Granted], r.Reviews, r.Planned, r.Findings)
	}
	for _, r := range c.Results {
		r.describe(line)
	}
	if len(c.Findings) > 0 {
		line("\n## Findings")
	}
	for _, f := range c.Findings {
		line("\n### %s (%s, %d)%s\n", f.Reason, f.Level, f.Count, f.blamed())
		for _, e := range f.Examples {
			line("    %s", strings.NewReplacer("\n", " ", "\r", " ").Replace(e))
		}
	}
	return out.String()
}

// Verify judges a bundle again, from its evidence, and says what differs.
func Verify(set *scenarios.Set, folder string) (c *Certification, differences []string, err error) {
	raw, err := readLimited(filepath.Join(folder, certificationFile))
	if err != nil {
		return nil, nil, err
	}
	c = &Certification{}
	if err := yaml.UnmarshalStrict(raw, c); err != nil {
		return nil, nil, fmt.Errorf("%s: %s", certificationFile, firstLine(err))
	}
	evidence, err := readLimited(filepath.Join(folder, evidenceFile))
	if err != nil {
		return nil, nil, err
	}
	answers, err := ParseEvidence(evidence)
	if err != nil {
		return nil, nil, err
	}
	b, err := NewBook(set, c.Seed)
	if err != nil {
		return nil, nil, err
	}
	if b.Digest != c.SuiteDigest {
		return c, []string{"suiteDigest: the bundle was made with another version of the suite, or another seed"}, nil
	}
	run := &Run{Answers: answers, Started: c.Started}
	if run.Findings, err = b.judgeAll(answers); err != nil {
		return c, nil, err
	}
	run.Results = b.levels(answers, run.Findings)
	again := run.Certification(b, c.Product)
	for _, field := range []struct {
		name      string
		was, then any
	}{
		{"apiVersion", c.APIVersion, again.APIVersion}, {"kind", c.Kind, again.Kind}, {"mode", c.Mode, again.Mode},
		{"policyDigest", c.PolicyDigest, again.PolicyDigest}, {"levels", c.Levels, again.Levels},
		{"results", c.Results, again.Results}, {"findings", c.Findings, again.Findings},
	} {
		was, _ := json.Marshal(field.was)
		then, _ := json.Marshal(field.then)
		if !bytes.Equal(was, then) {
			differences = append(differences, fmt.Sprintf("%s: %s, and the evidence says %s", field.name, was, then))
		}
	}
	if summary, err := readLimited(filepath.Join(folder, summaryFile)); err != nil || string(summary) != c.Summary() {
		differences = append(differences, summaryFile+": it does not say what "+certificationFile+" says")
	}
	return c, differences, nil
}

// ParseEvidence reads the answers of a bundle.
func ParseEvidence(raw []byte) (out []Answer, err error) {
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, maxBundleFile) // what was seen of a scenario is one line
	for n := 1; lines.Scan(); n++ {
		var a Answer
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&a); err != nil {
			return nil, fmt.Errorf("%s:%d: it is no answer", evidenceFile, n)
		}
		out = append(out, a)
	}
	return out, lines.Err()
}

func readLimited(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxBundleFile:
		return nil, fmt.Errorf("%s is no file of at most %d bytes", path, maxBundleFile)
	}
	return os.ReadFile(path)
}
