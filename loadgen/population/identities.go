package population

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// readIdentity returns whom the answer to a SelfSubjectReview names, as the log keeps it.
func readIdentity(body []byte) string {
	var answer authenticationv1.SelfSubjectReview
	if err := json.Unmarshal(body, &answer); err != nil {
		return "an answer that is not a SelfSubjectReview"
	}
	u := answer.Status.UserInfo
	user := scenarios.User{Name: u.Username, UID: u.UID, Groups: u.Groups}
	for key, values := range u.Extra {
		if user.Extra == nil {
			user.Extra = map[string][]string{}
		}
		user.Extra[key] = values
	}
	return identityText(user)
}

// identityText returns a user as a text that is the same for the same user. The order of groups and values counts for
// nothing.
func identityText(u scenarios.User) string {
	u.Groups = slices.Sorted(slices.Values(u.Groups))
	extra := map[string][]string{}
	for key, values := range u.Extra {
		extra[key] = slices.Sorted(slices.Values(values))
	}
	u.Extra = extra
	text, _ := json.Marshal(u)
	return string(text)
}

// nameIn returns the name of the user in an identity's text, or the text itself if it is not an identity.
func nameIn(identity string) string {
	var u scenarios.User
	if json.Unmarshal([]byte(identity), &u) != nil {
		return identity
	}
	return u.Name
}

// forgetIDs removes what an API server generates about a user that is not impersonated: IDs of its account, pod and
// token.
func forgetIDs(variant profile.Variant, u scenarios.User) scenarios.User {
	if variant.As == profile.Nobody {
		u.UID, u.Extra = "", nil
	}
	return u
}

// ownKey returns the text of a review that is the same for the same question about the same user.
func ownKey(variant profile.Variant, spec authorizationv1.SubjectAccessReviewSpec) string {
	u := scenarios.User{Name: spec.User, UID: spec.UID, Groups: spec.Groups, Extra: map[string][]string{}}
	for key, values := range spec.Extra {
		u.Extra[key] = values
	}
	spec.User, spec.UID, spec.Groups, spec.Extra = "", "", nil, nil
	question, _ := json.Marshal(spec)
	return string(question) + identityText(forgetIDs(variant, u))
}

// CompareIdentities compares the identities that the server saw in the block that was predicted last with those that
// the agents wanted, by the answers in its log and, unless own is nil, by the reviews of requests themselves. givenUp
// reviews may or may not have reached the recorder.
func (h *History) CompareIdentities(
	variant profile.Variant,
	log []run.Request,
	own map[string]run.OwnReview,
	givenUp int64,
) (*run.Identities, error) {
	c := &identityCheck{History: h, variant: variant, log: log, out: &run.Identities{}}
	if err := c.compareAnswers(); err != nil {
		return nil, err
	}
	seesOwn := h.profile.Predictable() && !h.profile.Authorizer.Cache && own != nil
	if seesOwn {
		if err := c.compareReviews(own, givenUp); err != nil {
			return nil, err
		}
	}
	if c.out.Answers+c.out.Reviews == 0 {
		return nil, nil //nolint:nilnil // nothing shows it
	}
	return c.out, nil
}

// identityCheck compares the identities of a block.
type identityCheck struct {
	*History
	variant profile.Variant
	log     []run.Request
	out     *run.Identities
}

// compareAnswers compares the answers to those who asked who they are.
func (c *identityCheck) compareAnswers() error {
	wantedNames := map[int32]string{} // by agent
	model, err := oracle.New(c.config)
	if err != nil {
		return err
	}
	for _, r := range c.log {
		if r.Said == "" {
			continue
		}
		if wantedNames[r.Agent] == "" {
			requestor, imp, request, err := c.describe(observation{Request: r, variant: c.variant})
			if err != nil {
				return err
			}
			predicted := model.Do(requestor, imp, request)
			became := predicted.Requestor
			if predicted.User != nil {
				became = *predicted.User
			}
			wantedNames[r.Agent] = identityText(forgetIDs(c.variant, became))
		}
		c.out.Answers++
		if answer := c.readAnswer(r); answer != wantedNames[r.Agent] {
			c.out.Add(1, func() string {
				return fmt.Sprintf(
					"%s: the answer names %s, not %s; %s",
					c.name(r),
					answer,
					wantedNames[r.Agent],
					c.nameOther(r, nameIn(answer)),
				)
			})
		}
	}
	return nil
}

// readAnswer returns whom an answer names, as far as that is known beforehand.
func (c *identityCheck) readAnswer(r run.Request) string {
	var u scenarios.User
	if json.Unmarshal([]byte(r.Said), &u) != nil {
		return r.Said
	}
	return identityText(forgetIDs(c.variant, u))
}

// name returns a request for people.
func (c *identityCheck) name(r run.Request) string {
	return Describe(c.profile, c.variant, pacer.Send{At: r.From.Round(time.Microsecond), Agent: r.Agent, Kind: r.Kind})
}

// nameOther returns the request of a user that was sent last before another one was answered.
func (c *identityCheck) nameOther(r run.Request, user string) string {
	var request *run.Request
	for i := range c.log {
		other := &c.log[i]
		isTheirs := c.isFor(*other, user) && other.From <= r.To
		isLater := request == nil || other.From >= request.From
		if isTheirs && isLater && *other != r {
			request = other
		}
	}
	if request == nil {
		return "no request of the block is for that user"
	}
	return "the last one for that user is " + c.name(*request)
}

// isFor reports whether a request is for a user.
func (c *identityCheck) isFor(r run.Request, user string) bool {
	q := asking(c.profile, c.variant, int(r.Agent))
	if q.imp != nil && q.imp.User == user {
		return true
	}
	_, account := sender(c.profile, q.identity)
	return user == "system:serviceaccount:"+space(c.variant)+":"+account
}

// seenReview is a review of requests themselves that arrived, in one or several texts.
type seenReview struct {
	spec authorizationv1.SubjectAccessReviewSpec
	run.OwnReview
}

// compareReviews compares the reviews of requests themselves with those that the requests of the block lead to.
func (c *identityCheck) compareReviews(own map[string]run.OwnReview, givenUp int64) error {
	reviews := map[string]*seenReview{}
	for text, review := range own {
		var subjectReview authorizationv1.SubjectAccessReview
		if err := json.Unmarshal([]byte(text), &subjectReview); err != nil {
			return fmt.Errorf("a review of a request itself: %w", err)
		}
		key := ownKey(c.variant, subjectReview.Spec)
		if reviews[key] == nil {
			reviews[key] = &seenReview{subjectReview.Spec, run.OwnReview{First: review.First}}
		}
		reviews[key].Count += review.Count
		reviews[key].First = min(reviews[key].First, review.First)
	}
	for _, key := range sortByArrival(reviews) {
		review := reviews[key]
		c.out.Reviews += review.Count
		switch predicted := c.own[key]; {
		case predicted == nil:
			c.out.Add(review.Count, func() string { return c.describeStray(review) })
		case review.Count > predicted.High+givenUp:
			c.out.Add(review.Count-predicted.High, func() string {
				return fmt.Sprintf(
					"%s was authorized %d times, and at most %d such requests were sent",
					describeReview(review.spec),
					review.Count,
					predicted.High,
				)
			})
		}
	}
	return nil
}

// sortByArrival returns the keys of reviews in the order in which they arrived first.
func sortByArrival(reviews map[string]*seenReview) (keys []string) {
	for key := range reviews {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(x, y string) int {
		return cmp.Or(cmp.Compare(reviews[x].First, reviews[y].First), strings.Compare(x, y))
	})
	return keys
}

// describeReview returns in words what a review asks.
func describeReview(spec authorizationv1.SubjectAccessReviewSpec) string {
	text := "a request"
	if a := spec.ResourceAttributes; a != nil {
		text = a.Verb + " " + a.Resource
		if a.Name != "" {
			text += " " + a.Namespace + "/" + a.Name
		}
		if a.FieldSelector != nil {
			for _, r := range a.FieldSelector.Requirements {
				text += fmt.Sprintf(" (%s=%s)", r.Key, strings.Join(r.Values, ","))
			}
		}
	}
	return fmt.Sprintf("%s as %s of %s", text, spec.User, strings.Join(spec.Groups, ", "))
}

// describeStray describes a review that no request leads to, with the request for the same object that was open at the
// time, and the last one of the user that it is about.
func (c *identityCheck) describeStray(review *seenReview) string {
	text := fmt.Sprintf(
		"%s was authorized at %s, which no agent asked for",
		describeReview(review.spec),
		review.First.Round(time.Microsecond),
	)
	for _, r := range c.log {
		isUnderWay := r.From <= review.First && review.First <= r.To
		if !isUnderWay || !c.isSameObject(r, review.spec) {
			continue
		}
		return fmt.Sprintf("%s. Under way was %s; %s", text, c.name(r), c.nameOther(r, review.spec.User))
	}
	return text
}

// isSameObject reports whether a request is for what a review is about, but by another user.
func (c *identityCheck) isSameObject(r run.Request, spec authorizationv1.SubjectAccessReviewSpec) bool {
	_, _, request, err := c.describe(observation{Request: r, variant: c.variant})
	attributes := spec.ResourceAttributes
	if err != nil || attributes == nil {
		return false
	}
	isSame := request.Verb == attributes.Verb && request.Resource == attributes.Resource && request.Name == attributes.Name
	selector := scenarios.FieldRequirements(request.Fields)
	if attributes.FieldSelector == nil {
		return isSame && len(selector) == 0
	}
	return isSame && fmt.Sprint(selector) == fmt.Sprint(attributes.FieldSelector.Requirements)
}
