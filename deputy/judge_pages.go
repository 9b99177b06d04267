package deputy

import (
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/verdicts"
)

const wantPage = "the answers follow from the grants, and the authorizer is asked two questions about the person for each review"

// pageCost is what the self-subject reviews of a page cost. Times are reported, and not judged.
type pageCost struct {
	page    string
	reviews int
	// authorizerReviews is how many access reviews the authorizer got for them, for each way in which the page was
	// opened. It is empty where that cannot be seen.
	authorizerReviews []int
	// took is how long that took, for each way in which the page was opened.
	took []time.Duration
	// each has the times of the single reviews, which were sent one after another, in ascending order.
	each []time.Duration
	// rules means that the page asks for the rules. incomplete means that the answer does not have all of them.
	rules, incomplete bool
}

// judgeVisits judges the reviews of pages by the grants, and what the authorizer was asked by what the reviews ask.
func (e *preflightEvidence) judgeVisits(out *judgement, g *group) error {
	if want := len(pages()) * len(pageVisits); len(e.Visits) != want {
		return fmt.Errorf("there is evidence of %d visits to pages, not of %d", len(e.Visits), want)
	}
	for n, p := range pages() {
		cost := pageCost{page: p.Page}
		for way, visit := range e.Visits[n*len(pageVisits):][:len(pageVisits)] {
			j := &visitJudge{page: p, who: g.fixture.visitor(n), group: g, out: out, name: fmt.Sprintf("%s, %s", p.Page, pageVisits[way])}
			if err := j.judge(visit, &cost); err != nil {
				return fmt.Errorf("%s: %w", j.name, err)
			}
			if way != allAtOnce {
				cost.each = append(cost.each, visit.durations()...)
			}
		}
		slices.Sort(cost.each)
		out.pages = append(out.pages, cost)
	}
	return nil
}

// durations returns how long each review took.
func (v visitEvidence) durations() (each []time.Duration) {
	for _, o := range v.Reviews {
		each = append(each, o.Answered.Sub(o.Sent))
	}
	return each
}

// duration returns how long the visit took.
func (v visitEvidence) duration() time.Duration {
	began, ended := v.Reviews[0].Sent, v.Reviews[0].Answered
	for _, o := range v.Reviews {
		if o.Sent.Before(began) {
			began = o.Sent
		}
		if o.Answered.After(ended) {
			ended = o.Answered
		}
	}
	return ended.Sub(began)
}

// visitJudge judges a visit to a page.
type visitJudge struct {
	page  page
	who   *Identity
	group *group
	out   *judgement
	name  string
}

// judge judges the reviews of the visit, and adds what they cost.
func (j *visitJudge) judge(visit visitEvidence, cost *pageCost) error {
	questions, requests := j.page.reviewsOf(j.who, j.group.fixture.namespaces[0])
	if len(visit.Reviews) != len(requests) {
		return fmt.Errorf("there is evidence of %d reviews, not of %d", len(visit.Reviews), len(requests))
	}
	j.out.checks++
	var expected []string
	for i, o := range visit.Reviews {
		expected = append(expected,
			describeQuestion(
				&authorizationv1.ResourceAttributes{
					Verb:     "create",
					Group:    "authorization.k8s.io",
					Version:  "v1",
					Resource: requests[i].Resource,
				},
			),
		)
		if questions == nil {
			cost.rules, cost.incomplete = true, j.judgeRules(o)
			continue
		}
		expected = append(expected, describeQuestion(questions[i].attributes()))
		j.judgeReview(questions[i], j.page.Asks[i], o)
	}
	cost.reviews, cost.took = len(requests), append(cost.took, visit.duration())
	if !j.group.isForeign() {
		cost.authorizerReviews = append(cost.authorizerReviews, len(visit.Authorizer))
		j.judgeQuestions(visit.Authorizer, expected)
	}
	return nil
}

// judgeRules demands that the request for the rules is answered. It reports whether the rules are incomplete.
func (j *visitJudge) judgeRules(o *verdicts.Observation) (incomplete bool) {
	var rules authorizationv1.SelfSubjectRulesReview
	if a, err := decodeReview(o, &rules); err != nil || a != allowed {
		j.fail("the rules are %q (%v)", a, err)
	}
	return rules.Status.Incomplete
}

// judgeReview demands that a review is answered. On a control plane of ours, the answer has to follow from the grants.
func (j *visitJudge) judgeReview(q question, text string, o *verdicts.Observation) {
	want := forbidden
	if j.group.fixture.isGranted(q) {
		want = allowed
	}
	got, _, err := reviewAnswer(o)
	isAgainstGrants := !j.group.isForeign() && got != want
	if err != nil || isAgainstGrants {
		j.fail("the review of %s says %q, by the grants it is %q (%v)", text, got, want, err)
	}
}

// judgeQuestions demands that the authorizer was asked, about the person who opens the page, whether each review may be
// made and what the review is about. What it is asked about the proxy depends on what the API server remembers, and is
// only counted.
func (j *visitJudge) judgeQuestions(reviews []verdicts.Review, expected []string) {
	var got []string
	for _, r := range reviews {
		if r.Spec.User == j.who.Name && r.Spec.ResourceAttributes != nil {
			got = append(got, describeQuestion(r.Spec.ResourceAttributes))
		}
	}
	slices.Sort(got)
	slices.Sort(expected)
	if !slices.Equal(got, expected) {
		j.fail("the authorizer was asked %q about %s, and has to be asked %q", got, j.who.Name, expected)
	}
}

func (j *visitJudge) fail(format string, args ...any) {
	j.out.fail(j.name+" by "+j.who.Name, wantPage, format, args...)
}
