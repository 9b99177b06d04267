package certify

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
)

const version = "authzconf.dev/v1alpha2"

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
	Harness string `json:"authzconf,omitempty"` // the version of authzconf that asked and judged
	Mode    string `json:"mode"`                // how the authorizer was reached
	// Wire is the revision of KEP-5681's wire, for conditional authorizers.
	Wire string `json:"wire,omitempty"`
	Seed int64  `json:"seed"`
	// SuiteDigest is that of all that was asked, PolicyDigest that of the policy as JSON.
	SuiteDigest    string   `json:"suiteDigest"`
	PolicyDigest   string   `json:"policyDigest"`
	ReviewVersions []string `json:"reviewVersions,omitempty"` // those that were asked, if not all
	// Started and Ended are when it was asked, Certificates the SHA-256 of those that the webhook showed, Evidence that
	// of the file of answers, and Challenge what a certifier wanted to have answered.
	Started      time.Time       `json:"started"`
	Ended        time.Time       `json:"ended"`
	Certificates []string        `json:"certificates,omitempty"`
	Evidence     string          `json:"evidence"`
	Challenge    json.RawMessage `json:"challenge,omitempty"`
	// Levels are those that are granted; Results say why the others are not.
	Levels   []CertificationLevel `json:"levels"`
	Results  []LevelResult        `json:"results"`
	Findings []Finding            `json:"findings"`
}

// The files of a bundle.
const (
	certificationFile = "certification.yaml"
	evidenceFile      = "evidence.jsonl"
	summaryFile       = "summary.md"
	pageFile          = "report.html"
	junitFile         = "junit.xml"
	maxBundleFile     = 64 << 20
)

// Kind is a kind of certification, with the answers of its evidence. All else about bundles is the same for all kinds.
type Kind[A any] struct {
	// Name is the kind in certification.yaml, Title what an error calls it.
	Name, Title string
	Plan        func(seed int64) (Judge[A], error) // what is asked under a seed, which judges the answers
}

// Judge judges the answers to what was asked under a seed.
type Judge[A any] interface {
	// Suite is the digest of all that is asked.
	Suite() string
	// Judge says what the answers show: everything in a Certification that follows from evidence. Its error is about
	// answers to what was not asked.
	Judge(answers []A) (*Certification, error)
}

// Grant fills in the levels that are granted by the results.
func (c *Certification) Grant() *Certification {
	c.APIVersion, c.Levels, c.Findings = version, []CertificationLevel{}, append([]Finding{}, c.Findings...)
	for _, result := range c.Results {
		if result.Granted {
			c.Levels = append(c.Levels, result.Level)
		}
	}
	return c
}

// Of is the certification with what its vendor says.
func (c *Certification) Of(p Product) *Certification {
	out := *c
	out.Product = p
	return &out
}

// Folder is a bundle in a folder, with the signature that may be in it.
func (k Kind[A]) Folder() *filing.Kind {
	return &filing.Kind{
		Name: k.Title, Marker: certificationFile,
		Head:  map[string]string{"kind": k.Name, "apiVersion": "authzconf.dev/*"},
		Files: []string{evidenceFile, summaryFile, pageFile, junitFile, signatureFile, badgePrefix + "*.svg"},
	}
}

// Write makes a bundle: the certification, a summary, and every answer.
func (k Kind[A]) Write(folder string, c *Certification, answers []A) error {
	b, err := bundleOf(c, answers)
	if err != nil {
		return err
	}
	return k.Folder().Write(folder, b)
}

func bundleOf[A any](c *Certification, answers []A) (Bundle, error) {
	var evidence bytes.Buffer
	lines := json.NewEncoder(&evidence)
	for _, a := range answers {
		if err := lines.Encode(a); err != nil {
			return nil, err
		}
	}
	c.Evidence = digest(evidence.Bytes())
	certification, err := yaml.Marshal(c)
	if err != nil {
		return nil, err
	}
	b, err := c.shown()
	if err != nil {
		return nil, err
	}
	b[certificationFile], b[evidenceFile] = certification, evidence.Bytes()
	return b, nil
}

// OtherSuiteError says that a bundle cannot be judged here.
type OtherSuiteError struct {
	Certification *Certification // what the bundle claims; Here is the digest of this version
	Here          string
}

func (e *OtherSuiteError) Error() string {
	return fmt.Sprintf("the bundle was made with suite %.12s, and this version of authzconf has %.12s for seed %d: it has to be judged by the version that made it, %.40s",
		e.Certification.SuiteDigest, e.Here, e.Certification.Seed, cmp.Or(e.Certification.Harness, "which it does not name"))
}

// Certification is what the bundle claims. Nothing is checked but the form.
func (b Bundle) Certification() (*Certification, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
	}
	err := yaml.Unmarshal(b[certificationFile], &head)
	if err == nil && head.APIVersion != "" && head.APIVersion != version {
		return nil, fmt.Errorf("%s: apiVersion %.80q: expected %s; earlier versions of authzconf judge what they wrote", certificationFile, head.APIVersion, version)
	}
	c := &Certification{}
	if err = reports.DecodeYAML(b[certificationFile], c); err != nil {
		return nil, fmt.Errorf("%s: %s", certificationFile, firstLine(err))
	}
	return c, nil
}

// Verify judges a bundle again, from its evidence, and says what differs. One of another suite is an OtherSuiteError.
func (k Kind[A]) Verify(b Bundle) (c *Certification, differences []string, err error) {
	if c, err = b.Certification(); err != nil {
		return nil, nil, err
	}
	evidence, ok := b[evidenceFile]
	if !ok {
		return c, []string{evidenceFile + ": it is missing"}, nil
	}
	answers, err := ParseEvidence[A](evidence)
	if err != nil {
		return nil, nil, err
	}
	plan, err := k.Plan(c.Seed)
	if err != nil {
		return nil, nil, err
	}
	if plan.Suite() != c.SuiteDigest {
		return c, nil, &OtherSuiteError{Certification: c, Here: plan.Suite()}
	}
	again, err := plan.Judge(answers)
	if err != nil {
		return c, []string{evidenceFile + ": " + err.Error()}, nil //nolint:nilerr // it is about the bundle
	}
	if c.Evidence != digest(evidence) {
		differences = append(differences, evidenceFile+": it is not what "+certificationFile+" has the digest of")
	}
	differences = append(c.differences(again), differences...)
	claimed := *c
	made, err := bundleOf(&claimed, answers)
	if err := c.Product.Check(); err != nil {
		differences = append(differences, fmt.Sprintf("%s: %s", certificationFile, err))
	}
	return c, append(differences, b.unlike(made)...), err
}

// differences are the claims that do not follow from the evidence, by which the certification would be again.
func (c *Certification) differences(again *Certification) (out []string) {
	for _, field := range []struct {
		name      string
		was, then any
	}{
		{"apiVersion", c.APIVersion, again.APIVersion}, {"kind", c.Kind, again.Kind}, {"mode", c.Mode, again.Mode}, {"wire", c.Wire, again.Wire},
		{"policyDigest", c.PolicyDigest, again.PolicyDigest}, {"reviewVersions", c.ReviewVersions, again.ReviewVersions}, {"levels", c.Levels, again.Levels},
		{"results", c.Results, again.Results}, {"findings", c.Findings, again.Findings},
	} {
		was, _ := json.Marshal(field.was)
		then, _ := json.Marshal(field.then)
		if !bytes.Equal(was, then) {
			out = append(out, fmt.Sprintf("%s: %s, and the evidence says %s", field.name, was, then))
		}
	}
	return out
}

// ParseEvidence reads the answers of a bundle, one a line.
func ParseEvidence[A any](raw []byte) (out []A, err error) {
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, maxBundleFile) // what was seen of a scenario is one line
	for n := 1; lines.Scan(); n++ {
		var a A
		if reports.DecodeStrictly(lines.Bytes(), &a) != nil {
			return nil, fmt.Errorf("%s:%d: it is not an answer", evidenceFile, n)
		}
		out = append(out, a)
	}
	if len(raw) > 0 && raw[len(raw)-1] != '\n' {
		return nil, fmt.Errorf("%s: it is cut off in its last line", evidenceFile)
	}
	return out, lines.Err()
}

const maxProductField = 100

// Check says what is wrong with the description. Either nothing is said, or vendor, product and version are.
func (p Product) Check() error {
	if p == (Product{}) {
		return nil
	}
	for _, f := range []struct{ name, value string }{
		{"vendor", p.Vendor}, {"product", p.Name}, {"version", p.Version}, {"contact", p.Contact},
	} {
		if err := checkField(f.value, f.name != "contact"); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if p.Contact == "" {
		return nil
	}
	if u, err := url.Parse(p.Contact); err == nil && u.Scheme == "https" && u.Host != "" {
		return nil
	}
	if a, err := mail.ParseAddress(p.Contact); err != nil || a.Address != p.Contact {
		return fmt.Errorf("contact: %q is neither a mail address nor an https URL", p.Contact)
	}
	return nil
}

func checkField(s string, needed bool) error {
	switch {
	case s == "" && needed:
		return errors.New("it is missing: vendor, product and version are given together")
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("%.80q has characters that cannot be printed", s)
	case strings.TrimSpace(s) != s:
		return fmt.Errorf("%q begins or ends with a blank", s)
	case utf8.RuneCountInString(s) > maxProductField:
		return fmt.Errorf("%.20q… is longer than %d characters", s, maxProductField)
	}
	return nil
}
