package certify

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/certify/policy"
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
	// Harness is the version of authzconf that asked and judged.
	Harness string `json:"authzconf,omitempty"`
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

// certificationKind is the kind in certification.yaml.
const certificationKind = "AuthorizerCertification"

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
		APIVersion: policy.Version, Kind: certificationKind, Product: p, Mode: "direct", Seed: b.Policy.Seed,
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
	b, err := c.bundle(answers)
	if err != nil {
		return err
	}
	return Folder.Write(folder, b)
}

// bundle are the files of the certification.
func (c *Certification) bundle(answers []Answer) (Bundle, error) {
	var evidence bytes.Buffer
	lines := json.NewEncoder(&evidence)
	for _, a := range answers {
		if err := lines.Encode(a); err != nil {
			return nil, err
		}
	}
	certification, err := yaml.Marshal(c)
	if err != nil {
		return nil, err
	}
	b := Bundle{certificationFile: certification, evidenceFile: evidence.Bytes(), summaryFile: []byte(c.Summary())}
	maps.Copy(b, c.badges())
	return b, nil
}

// Summary is the certification for a person, in Markdown.
func (c *Certification) Summary() string {
	var out strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&out, format+"\n", args...) }
	line("# Certification of %s", c.title())
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

// OtherSuiteError says that a bundle cannot be judged here.
type OtherSuiteError struct {
	// Certification is what the bundle claims; Here is the digest of this version.
	Certification *Certification
	Here          string
}

func (e *OtherSuiteError) Error() string {
	return fmt.Sprintf("the bundle was made with suite %.12s, and this version of authzconf has %.12s for seed %d: it has to be judged by the version that made it, %.40s",
		e.Certification.SuiteDigest, e.Here, e.Certification.Seed, cmp.Or(e.Certification.Harness, "which it does not name"))
}

// certification is what the bundle claims.
func (b Bundle) certification() (*Certification, error) {
	c := &Certification{}
	if err := yaml.UnmarshalStrict(b[certificationFile], c); err != nil {
		return nil, fmt.Errorf("%s: %s", certificationFile, firstLine(err))
	}
	return c, nil
}

// Verify judges a bundle again, from its evidence, and says what differs. A
// bundle of another version of the suite is an OtherSuiteError.
func Verify(set *scenarios.Set, path string) (c *Certification, differences []string, err error) {
	b, err := OpenBundle(path)
	if err != nil {
		return nil, nil, err
	}
	return b.Verify(set)
}

// Verify is Verify for a bundle that has been read.
func (b Bundle) Verify(set *scenarios.Set) (c *Certification, differences []string, err error) {
	if c, err = b.certification(); err != nil {
		return nil, nil, err
	}
	evidence, ok := b[evidenceFile]
	if !ok {
		return c, []string{evidenceFile + ": it is missing"}, nil
	}
	answers, err := ParseEvidence(evidence)
	if err != nil {
		return nil, nil, err
	}
	book, err := NewBook(set, c.Seed)
	if err != nil {
		return nil, nil, err
	}
	if book.Digest != c.SuiteDigest {
		return c, nil, &OtherSuiteError{Certification: c, Here: book.Digest}
	}
	run := &Run{Answers: answers, Started: c.Started}
	if run.Findings, err = book.judgeAll(answers); err != nil {
		return c, []string{evidenceFile + ": " + err.Error()}, nil //nolint:nilerr // it is about the bundle
	}
	run.Results = book.levels(answers, run.Findings)
	again := run.Certification(book, c.Product)
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
	if string(b[summaryFile]) != c.Summary() {
		differences = append(differences, summaryFile+": it does not say what "+certificationFile+" says")
	}
	if err := c.Product.Check(); err != nil {
		differences = append(differences, fmt.Sprintf("%s: %s", certificationFile, err))
	}
	return c, append(differences, b.checkBadges(c)...), nil
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
