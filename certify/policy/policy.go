// Package policy is the neutral policy of certification, as data. It has every grant of the scenarios and those of the
// probes, under names that are made from a seed. So no two scenarios share an identity, and no table of answers that
// was written for one seed is right for another.
//
// The package is pure. What it says about a SubjectAccessReview is what an authorizer that has loaded the policy must
// say.
//
// Cases makes most grants, and with each the reviews that certification asks about it. A case of a wrong comparison is
// a line in relations.yaml. Every other case is made by a function of caseBuilder called add….
package policy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"unicode/utf16"
	"unicode/utf8"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Version is the version of the exported form.
const Version = "authzconf.dev/v1alpha1"

// Policy is the grants that a certified authorizer is given; all names in it are made from a seed.
//
// What no grant covers gets no opinion, because the authorizers behind have to be asked.
type Policy struct {
	Seed int64 // what the names and the order were made from
	// Grants are in an order that depends on the seed. The order means nothing.
	Grants     []scenarios.Grant
	Identities Identities // who has grants beside those of the scenarios and the cases

	byUser, byGroup map[string][]*scenarios.Grant
}

// Bound returns the scenarios with the names that belong to a seed.
func Bound(all []*scenarios.Scenario, seed int64) []*scenarios.Scenario {
	out := make([]*scenarios.Scenario, len(all))
	for i, s := range all {
		out[i], _ = s.Bind(scenarios.Suffix(seed, "certify", s.ID))
	}
	return out
}

// New returns the policy of scenarios that Bound has named. It leaves out grants to identities that every cluster has,
// such as system:anonymous, because they would collide with one another and with the grants in a vendor's cluster.
func New(bound []*scenarios.Scenario, seed int64) *Policy {
	p := &Policy{Seed: seed, Identities: newIdentities(seed)}
	for _, s := range bound {
		objects := slices.Concat(s.Manifests, s.Objects)
		for _, g := range slices.Concat(s.Grants, scenarios.RulesFromManifests(objects)) {
			if strings.Contains(g.Subject.User+g.Subject.Group, s.Suffix) {
				g.ID = ""
				p.Grants = append(p.Grants, g)
			}
		}
	}
	p.Grants = append(p.Grants, p.Identities.grants()...)
	for _, c := range Cases(seed) {
		p.Grants = append(p.Grants, c.Grants...)
	}
	p.Grants = seq.UniqueBy(p.Grants, func(g scenarios.Grant) string {
		raw, _ := json.Marshal(g) // a structure of strings can always be encoded
		return string(raw)
	})
	Random(seed, "policy").Shuffle(len(p.Grants), func(i, j int) { p.Grants[i], p.Grants[j] = p.Grants[j], p.Grants[i] })
	return p.Index()
}

// Random returns a source of random numbers that depends only on the seed and on the purpose.
func Random(seed int64, purpose string) *rand.Rand {
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], uint64(seed))
	copy(key[8:], "authzconf certify "+purpose)
	return rand.New(rand.NewChaCha8(key))
}

// Index makes Decide fast. It has to be called after Grants was changed. It returns the policy.
func (p *Policy) Index() *Policy {
	p.byUser, p.byGroup = map[string][]*scenarios.Grant{}, map[string][]*scenarios.Grant{}
	for i := range p.Grants {
		g := &p.Grants[i]
		if g.Subject.User != "" {
			p.byUser[g.Subject.User] = append(p.byUser[g.Subject.User], g)
		} else {
			p.byGroup[g.Subject.Group] = append(p.byGroup[g.Subject.Group], g)
		}
	}
	return p
}

// Decide returns what the policy decides about a review.
func (p *Policy) Decide(spec authorizationv1.SubjectAccessReviewSpec) scenarios.Decision {
	covers := func(g *scenarios.Grant) bool { return g.Covers(spec) }
	if slices.ContainsFunc(p.byUser[spec.User], covers) {
		return scenarios.Allow
	}
	for _, group := range spec.Groups {
		if slices.ContainsFunc(p.byGroup[group], covers) {
			return scenarios.Allow
		}
	}
	return scenarios.NoOpinion
}

// Nearest returns the grant that covers most of what a review asks. Who asks counts more than what is asked.
func (p *Policy) Nearest(s authorizationv1.SubjectAccessReviewSpec) (nearest scenarios.Grant, ok bool) {
	best := 0
	for i := range p.Grants {
		if score := nearness(&p.Grants[i], s); score > best {
			nearest, best = p.Grants[i], score
		}
	}
	return nearest, best >= 4
}

// points returns n if something fits, and 0 otherwise.
func points(n int, fits bool) int {
	if fits {
		return n
	}
	return 0
}

// isLike reports whether a requested value differs from the granted one only in capitals and surrounding blanks.
func isLike(grantedValue, requestedValue string) bool {
	return grantedValue != "" && strings.EqualFold(strings.TrimSpace(requestedValue), grantedValue)
}

// nearness returns how much of a review a grant covers or nearly covers, in points.
func nearness(g *scenarios.Grant, s authorizationv1.SubjectAccessReviewSpec) int {
	isCommon := strings.HasPrefix(g.Subject.Group, "system:") // nearly everybody is in such a group
	overlaps := strings.Contains(s.User, g.Subject.User) || strings.HasPrefix(g.Subject.User, s.User)
	score := points(8, !isCommon && g.Subject.Is(s.User, s.Groups)) +
		points(6, isLike(g.Subject.User, s.User)) +
		points(3, len(g.Subject.User) > 5 && overlaps)
	if a := s.ResourceAttributes; a != nil {
		full := scenarios.FullResource(a.Resource, a.Subresource)
		isVerb := slices.ContainsFunc(g.Verbs, func(v string) bool { return v == "*" || isLike(v, a.Verb) })
		isResource := slices.ContainsFunc(g.Resources, func(r string) bool { return r == "*" || isLike(r, full) })
		isGroup := slices.Contains(g.APIGroups, a.Group) || slices.Contains(g.APIGroups, "*")
		isNamespace := g.Namespace == a.Namespace || isLike(g.Namespace, a.Namespace)
		isName := slices.ContainsFunc(g.Names, func(n string) bool { return isLike(n, a.Name) })
		return score + points(2, isVerb) + points(2, isResource) + points(1, isGroup) + points(2, len(g.Resources) > 0 && isNamespace) + points(2, isName)
	}
	if a := s.NonResourceAttributes; a != nil {
		isPath := slices.ContainsFunc(g.NonResourceURLs, func(u string) bool { return isLike(u, a.Path) })
		score += points(2, isPath) + points(2, len(g.NonResourceURLs) > 0 && slices.Contains(g.Verbs, a.Verb))
	}
	return score
}

// Digest returns the SHA-256 of the policy's JSON, in hexadecimal.
func (p *Policy) Digest() string {
	raw, err := p.JSON()
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(raw))
}

// Without returns the policy without the grants to the given users.
func (p *Policy) Without(users ...string) *Policy {
	out := *p
	out.Grants = slices.DeleteFunc(slices.Clone(p.Grants), func(g scenarios.Grant) bool {
		return slices.Contains(users, g.Subject.User)
	})
	return out.Index()
}

// Holder contains a policy that can be replaced while it is used.
type Holder struct{ atomic.Pointer[Policy] }

// NewHolder returns a Holder that contains a policy.
func NewHolder(p *Policy) *Holder {
	h := &Holder{}
	h.Store(p)
	return h
}

// Decide returns what the current policy decides about a review.
func (h *Holder) Decide(spec authorizationv1.SubjectAccessReviewSpec) scenarios.Decision {
	return h.Load().Decide(spec)
}

// Formats returns the forms in which Export can render a policy.
func Formats() []string {
	return []string{"rbac", "json", "sar-table", "cedar", "cedar-k8s", "rego", "opa", "openfga"}
}

// folders are the files beside the policy, of the forms that are several files.
//
//go:embed folders
var folders embed.FS

// Export renders the policy. The same seed gives the same bytes. A form of several files has them by name; any other
// form has one file, under the name "".
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
	folderFiles, _ := fs.Glob(folders, "folders/"+format+"/*") // fails only for a bad pattern
	for _, name := range folderFiles {
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

// JSON returns the policy as grants.
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
	p := &Policy{Seed: read.Seed, Grants: read.Grants, Identities: newIdentities(read.Seed)}
	return p.Index(), nil
}

// RBAC returns the policy as roles and bindings, one of each for a grant, with the namespaces that they need.
func (p *Policy) RBAC() ([]byte, error) {
	var out bytes.Buffer
	namespaces := map[string]bool{"": true, "default": true, "kube-system": true, "kube-public": true} // every cluster has these
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

// plainWord matches what a table can contain without quotes.
var plainWord = regexp.MustCompile(`^[!-&(-~]+$`)

// Table returns a table with one line for each thing that is granted, with all combinations written out. "-" stands for
// an empty value. A value with blanks or characters other than ASCII is quoted as in Go. What no line has gets no
// opinion.
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
	err := t.Flush() // has to come before out is read
	return out.Bytes(), err
}

//go:embed rules.rego
var regoRules string

// Rego returns the policy as a module for Open Policy Agent 1.0 and later. Its input is the spec of a v1
// SubjectAccessReview. If data.authzconf.certification.allow is false, there is no opinion.
func (p *Policy) Rego() ([]byte, error) {
	raw, err := json.MarshalIndent(map[string]any{"by_user": p.byUser, "by_group": p.byGroup}, "", "\t")
	// Rego accepts no byte-order mark, not even in a string.
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
