package scenarios

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
)

type checker struct {
	s   *Scenario
	src *source
}

// check records everything that is wrong with one scenario.
func check(f *loadedFile) {
	c := &checker{s: f.scenario, src: f.source}
	c.checkIdentity()
	c.checkRequires()
	c.checkRequestors()
	c.checkNodes()
	for i, obj := range c.s.Objects {
		for _, p := range manifestProblems(obj) {
			c.fail(at("objects", i), "%s", p)
		}
	}
	c.checkManifests()
	c.checkGrants()
	c.checkPolicy()
	c.checkSteps()
	c.checkNames()
}

// at returns the path of field names and list indices that leads to a node.
func at(path ...any) []any { return path }

func (c *checker) fail(path []any, format string, args ...any) { c.src.failAt(path, format, args...) }

func (c *checker) failIf(bad bool, path []any, format string, args ...any) {
	if bad {
		c.fail(path, format, args...)
	}
}

// requireOne records that both or neither of two fields is given. format gets what is given. Fields that did not decode
// are reported already, and are skipped.
func (c *checker) requireOne(path []any, format, first string, hasFirst bool, second string, hasSecond bool) {
	if hasFirst != hasSecond || c.src.failedAt(path) {
		return
	}
	found := "neither " + first + " nor " + second
	if hasFirst {
		found = "both " + first + " and " + second
	}
	c.fail(path, format, found)
}

// require records that a required field is missing or empty. A field that did not decode is reported already, and is
// skipped.
func (c *checker) require(path []any, empty bool, expected string) {
	if !empty {
		return
	}
	name := path[len(path)-1]
	if !c.src.has(path) {
		c.fail(path, "%v is missing (expected %s)", name, expected)
		return
	}
	c.failIf(!c.src.failedAt(path), path, "%v is empty (expected %s)", name, expected)
}

// checkEnum records a value that is not one of those allowed. An empty value is a missing field, and is not reported
// here.
func checkEnum[T ~string](c *checker, path []any, value T, allowed ...T) {
	if value != "" && !slices.Contains(allowed, value) {
		c.fail(path, "%v is %q (expected one of %s)", path[len(path)-1], string(value), joinStrings(allowed))
	}
}

func (c *checker) checkIdentity() {
	s := c.s
	c.require(at("description"), strings.TrimSpace(s.Description) == "", "what is shown and why it matters")
	if c.src.has(at("source")) {
		c.require(at("source", "document"), s.Source.Document == "", "the document's short name, such as KEP-5284")
		c.require(at("source", "section"), s.Source.Section == "", "the heading, or the file and function")
	} else {
		c.require(at("source"), true, "a mapping with document, section")
	}
	c.require(at("level"), s.Level == "", "one of core, extended, divergence")
	checkEnum(c, at("level"), s.Level, Core, Extended, Divergence)
	switch {
	case s.Level == Divergence:
		c.require(at("documented"), strings.TrimSpace(s.Documented) == "", "what the document says, because the level is divergence")
	case s.Documented != "":
		c.fail(at("documented"), "documented is given, and the level is %q (expected it with level divergence only)", s.Level)
	}
}

func (c *checker) checkRequires() {
	r := c.s.Requires
	if !c.src.has(at("requires")) {
		c.require(at("requires"), true, "a mapping with at least gate")
	} else {
		c.require(at("requires", "gate"), r.Gate == "", "one of on, off, any")
	}
	checkEnum(c, at("requires", "gate"), r.Gate, GateOn, GateOff, GateAny)
	for i, capability := range r.Capabilities {
		c.require(at("requires", "capabilities", i), capability == "", "a capability")
		c.failIf(capability != "" && !slices.Contains(AllCapabilities(), capability), at("requires", "capabilities", i),
			"capability %q is unknown (expected one of %s)", capability, joinStrings(AllCapabilities()))
		c.failIf(slices.Contains(r.Capabilities[:i], capability), at("requires", "capabilities", i),
			"capability %q is listed twice (expected each once)", capability)
	}
	c.checkFeatureGates()
	for field, text := range map[string]string{"kubernetes": r.Kubernetes, "binary": r.Binary} {
		if text == "" {
			continue
		}
		if _, err := versionRange(text); err != nil {
			c.fail(at("requires", field), "%s is %q: %s (expected a range of minor versions such as \">=1.35, <1.37\")", field, text, err)
		}
	}
}

// impersonationGate is the gate that requires.gate is about.
const impersonationGate = "ConstrainedImpersonation"

func (c *checker) checkFeatureGates() {
	for name, state := range c.s.Requires.FeatureGates {
		path := at("requires", "featureGates", name)
		c.failIf(name == impersonationGate, path, "%s is stated here (expected its state in gate)", name)
		checkEnum(c, path, state, GateOn, GateOff)
		c.require(path, state == "", "one of on, off")
	}
}

func (c *checker) checkRequestors() {
	c.require(at("requestors"), len(c.s.Requestors) == 0, "at least one requestor")
	used := map[string]bool{}
	for _, st := range c.s.Steps {
		if r := st.Sent(); r != nil {
			used[r.By], used[r.Reviewed()] = true, true
			for _, alias := range r.With {
				used[alias] = true
			}
		}
	}
	for _, alias := range slices.Sorted(maps.Keys(c.s.Requestors)) {
		path := at("requestors", alias)
		c.failIf(!used[alias], path, "requestor %q is not used (expected a request with by: %s)", alias, alias)
		c.checkRequestor(c.s.Requestors[alias], path)
	}
}

func (c *checker) checkRequestor(r Requestor, path []any) {
	if c.src.failedAt(path) {
		return
	}
	c.checkWho(r, path)
	if sa := r.ServiceAccount; sa != nil {
		c.checkServiceAccount(sa, extend(path, "serviceAccount"))
	}
}

// checkWho checks that a requestor is exactly one of user, service account and anonymous, and that only a user has
// attributes.
func (c *checker) checkWho(r Requestor, path []any) {
	hasUser, hasAccount := r.User != "", r.ServiceAccount != nil
	hasName := hasUser || hasAccount
	switch {
	case hasUser && hasAccount:
		c.fail(path, "the requestor has both user and serviceAccount (expected exactly one)")
	case r.Anonymous && hasName:
		c.fail(path, "the requestor is anonymous and has a name (expected one of the two)")
	case !r.Anonymous && !hasName:
		c.fail(path, "the requestor has neither user nor serviceAccount (expected exactly one)")
	case r.Anonymous && r.hasAttributes():
		c.fail(path, "uid, groups and extra are given with anonymous (expected them with user only)")
	case hasAccount && r.hasAttributes():
		c.fail(path, "uid, groups and extra are given with serviceAccount (expected them with user only; a token has its own)")
	case r.Certificate && !hasUser:
		c.fail(extend(path, "certificate"), "certificate is given without user (expected it with user only)")
	case r.Certificate && r.hasMoreThanGroups():
		c.fail(extend(path, "certificate"), "certificate is given with uid or extra (expected groups only; a certificate has nothing else)")
	}
}

func (c *checker) checkServiceAccount(sa *ServiceAccount, path []any) {
	c.require(extend(path, "namespace"), sa.Namespace == "", "the account's namespace")
	c.require(extend(path, "name"), sa.Name == "", "the account's name")
	c.failIf(sa.NodeObject != nil && sa.Node == "", extend(path, "nodeObject"),
		"nodeObject is given without node (expected both)")
	c.failIf(sa.Secret != "" && sa.Pod+sa.Node != "", extend(path, "secret"),
		"secret is given with pod or node (expected one that the token is bound to)")
	for claim, text := range sa.Times {
		c.failIf(
			sa.Running || !isTokenTime(claim, text),
			extend(path, "times"),
			"times has %s: %q (expected exp, iat, nbf or warnafter with a duration from now, such as \"-2m\", of an account that does not run)",
			claim,
			text,
		)
	}
	c.checkRunning(sa, path)
}

// isTokenTime reports whether a claim is one of the times of a token and the text is a duration.
func isTokenTime(claim, text string) bool {
	_, err := time.ParseDuration(text)
	return err == nil && slices.Contains([]string{"exp", "iat", "nbf", "warnafter"}, claim)
}

func (c *checker) checkManifests() {
	seen := map[[3]string]bool{}
	define := func(m map[string]any, path []any) {
		key := [3]string{Text(m, "kind"), Text(m, "metadata", "namespace"), Text(m, "metadata", "name")}
		c.failIf(key[0] != "" && key[2] != "" && seen[key], path,
			"%s %q is defined twice (expected each object once in fixtures and objects)", key[0], key[2])
		seen[key] = true
	}
	for _, m := range c.s.Manifests {
		define(m, at("fixtures"))
	}
	for i, m := range c.s.Objects {
		define(m, at("objects", i))
	}
}

func (c *checker) checkGrants() {
	ids := map[string]int{}
	for i, g := range c.s.Grants {
		path := at("grants", i)
		if first, dup := ids[g.ID]; dup && g.ID != "" {
			c.fail(extend(path, "id"), "duplicate grant ID %q (expected an ID of its own; grant %d has it)", g.ID, first+1)
		}
		ids[g.ID] = i
		c.checkGrant(g, path)
	}
}

func (c *checker) checkGrant(g Grant, path []any) {
	c.requireOne(extend(path, "subject"), "the subject has %s (expected exactly one of user, group)",
		"user", g.Subject.User != "", "group", g.Subject.Group != "")
	c.require(extend(path, "verbs"), len(g.Verbs) == 0, "at least one verb")
	for field, list := range map[string][]string{
		"verbs":           g.Verbs,
		"resources":       g.Resources,
		"resourceNames":   g.Names,
		"nonResourceURLs": g.NonResourceURLs,
	} {
		if i := slices.Index(list, ""); i >= 0 && !c.src.failedAt(extend(path, field)) {
			c.fail(extend(path, field, i), "an entry of %s is empty (expected a text)", field)
		}
	}
	if len(g.NonResourceURLs) > 0 {
		hasResource := len(g.APIGroups) > 0 || len(g.Resources) > 0 || len(g.Names) > 0 || g.Namespace != ""
		c.failIf(hasResource, path, "the grant has nonResourceURLs and fields of resources (expected one of the two)")
		for i, u := range g.NonResourceURLs {
			c.failIf(u != "" && !isPathPattern(u), extend(path, "nonResourceURLs", i),
				"%q is not a path (expected one that begins with /, with \"*\" at the end only)", u)
		}
		return
	}
	c.require(extend(path, "resources"), len(g.Resources) == 0, "resources, or nonResourceURLs")
	c.require(extend(path, "apiGroups"), len(g.APIGroups) == 0, `at least one API group, "" for the core group`)
}

// isPathPattern reports whether a text is a path, or the beginning of paths with "*" at its end.
func isPathPattern(u string) bool {
	isPath := strings.HasPrefix(u, "/") && !strings.Contains(strings.TrimSuffix(u, "*"), "*")
	return isPath || u == "*"
}

// PolicyRule is what the scripted webhook of a chain answers to the reviews that For covers. The first rule that
// covers a review decides; a review that none covers gets no opinion.
type PolicyRule struct {
	// For selects the reviews. It has the form of a grant with its subject.
	For    Grant        `json:"for" yaml:"for"`
	Answer PolicyAnswer `json:"answer" yaml:"answer"`                     // how the webhook behaves
	Reason string       `json:"reason,omitempty" yaml:"reason,omitempty"` // the reason that the webhook gives
	// EvaluationError is an error that a well-formed review contains besides: what the webhook could not find out.
	EvaluationError string `json:"evaluationError,omitempty" yaml:"evaluationError,omitempty"`
}

// PolicyAnswer is how the scripted webhook behaves.
type PolicyAnswer string

const (
	// AnswerAllow, AnswerDeny and AnswerNoOpinion mean a well-formed review.
	AnswerAllow     PolicyAnswer = "allow"
	AnswerDeny      PolicyAnswer = "deny"
	AnswerNoOpinion PolicyAnswer = "noOpinion"
	// AnswerBoth means a review that allows and denies.
	AnswerBoth PolicyAnswer = "both"
	// AnswerError means HTTP 500 with the reason as body.
	AnswerError PolicyAnswer = "error"
	// AnswerForbidden means HTTP 403 with the reason as body.
	AnswerForbidden PolicyAnswer = "forbidden"
	// AnswerGarbage means HTTP 200 with HTML.
	AnswerGarbage PolicyAnswer = "garbage"
	// AnswerSilence means no answer until the API server gives up.
	AnswerSilence PolicyAnswer = "silence"
)

func (c *checker) checkPolicy() {
	c.failIf(len(c.s.Policy) > 0 && c.s.Requires.Chain == "", at("policy"),
		"policy is given without requires.chain (expected a chain with a webhook)")
	for i, r := range c.s.Policy {
		path := at("policy", i)
		c.require(extend(path, "answer"), r.Answer == "", "one of allow, deny, noOpinion, both, error, forbidden, garbage, silence")
		checkEnum(
			c,
			extend(path, "answer"),
			r.Answer,
			AnswerAllow,
			AnswerDeny,
			AnswerNoOpinion,
			AnswerBoth,
			AnswerError,
			AnswerForbidden,
			AnswerGarbage,
			AnswerSilence,
		)
		c.failIf(
			r.EvaluationError != "" &&
				slices.Contains([]PolicyAnswer{AnswerError, AnswerForbidden, AnswerGarbage, AnswerSilence}, r.Answer),
			extend(path, "evaluationError"),
			"evaluationError is given with answer %s (expected allow, deny, noOpinion or both: the others send no review that could carry it)",
			r.Answer,
		)
		c.failIf(r.For.ID != "", extend(path, "for"), "a rule has no id (expected it in grants only)")
		c.checkGrant(r.For, extend(path, "for"))
	}
}

// chainFile returns the path of a chain in the fixtures folder.
func chainFile(name string) string { return "chains/" + name + ".yaml" }

// chains returns the authorizer chains that the scenario uses, each once, beginning with the first.
func (s *Scenario) chains() (names []string) {
	if s.Requires.Chain != "" {
		names = append(names, s.Requires.Chain)
	}
	for _, st := range s.Steps {
		if st.Reload != "" {
			names = seq.AppendMissing(names, st.Reload)
		}
	}
	return names
}

// FixtureFiles returns all files of the fixtures folder that the scenario depends on: its fixtures and its chain.
func (s *Scenario) FixtureFiles() []string {
	return slices.Concat(s.Fixtures, seq.Map(s.chains(), chainFile))
}

// checkSetup applies the rules about setups to all scenarios. Each scenario is compared with the first one of its
// setup.
func checkSetup(f *loadedFile, set *Set, broken map[string]bool) {
	s, src := f.scenario, f.source
	if s.Setup == "" || !f.readable || src.failedAt(nil) {
		return
	}
	for i, st := range s.Steps {
		if st.Sent() == nil && st.Wait == 0 {
			src.failAt(at("steps", i), "the step changes what the setup %q keeps (expected requests and waits only)", s.Setup)
		}
	}
	mates := set.Only(func(o *Scenario) bool { return o.Setup == s.Setup }).all
	first := mates[0]
	if len(mates) == 1 {
		src.failAt(at("setup"), "no other scenario has the setup %q (expected two at least, for different versions or gates)", s.Setup)
	}
	if first == s || broken[first.ID] {
		return
	}
	for field, isEqual := range map[string]bool{
		"requestors": reflect.DeepEqual(s.Requestors, first.Requestors),
		"grants":     reflect.DeepEqual(s.Grants, first.Grants),
		"fixtures":   slices.Equal(s.Fixtures, first.Fixtures),
		"objects":    reflect.DeepEqual(s.Objects, first.Objects),
		"policy":     reflect.DeepEqual(s.Policy, first.Policy),
	} {
		if !isEqual {
			src.failAt(at(field), "%s are not those of %s, which has the same setup (expected the same)", field, first.ID)
		}
	}
}
