package gate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/authzconf/authzconf/drafts/conditional/model"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/engine/recorder"
)

// The events of a request. The first two are followed by the name of an authorizer. second begins the events of the
// second check.
const (
	asked      = "asked"            // a SubjectAccessReview
	evaluates  = "evaluates"        // an AuthorizationConditionsReview
	admission  = "admission"        // a mutating webhook: the request is past the authorization filter
	validation = "validation"       // a validating webhook
	exposed    = " sees conditions" // of an admission webhook
	forObject  = " for object "     // followed by the number of the object, unless it is 0; -1 means wrong data
	second     = "second "
)

// script is how the webhooks answer during one request.
type script struct {
	user, verb, object string
	chain, compound    []vectors.Authorizer
	behind             vectors.Decision // the decision of the last webhook, which is not part of vectors
	// insists is the decision to which the webhooks evaluate all conditions, possible or not. If it is empty, they
	// evaluate the conditions.
	insists vectors.Decision
	// answeredSets are the sets that each link has answered with, by check and name.
	answeredSets map[string][]vectors.ConditionSet
	events       []string
	// modes are the modes in which the webhooks of the chain were asked for conditions. versions are the versions of
	// the objects on which conditions were evaluated.
	modes    []vectors.Mode
	versions []string
}

// webhooks are all authorizers of the chain, and the two admission webhooks.
type webhooks struct {
	wire *wire.Revision
	mu   sync.Mutex
	now  *script // nil between requests
}

func (w *webhooks) follow(s *script) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = s
}

// placeOf returns where a link is asked. Each has two places, for its failure policy is the API server's configuration.
func placeOf(i int, mode vectors.FailureMode) string {
	return fmt.Sprintf("a%d-%s", i, strings.ToLower(string(mode)))
}

const behindAll = "behind"

var errRefused = errors.New("the authorizer's error")

func (w *webhooks) handler() http.Handler {
	mux := http.NewServeMux()
	for path, answer := range map[string]func(*script, string, []byte) ([]byte, error){
		"/authorize/":                  w.access,
		reference.ConditionsPath + "/": w.conditions,
		"/mutate/":                     w.mutate,
		"/validate/":                   w.validate,
	} {
		mux.HandleFunc(path, func(out http.ResponseWriter, req *http.Request) {
			body, err := io.ReadAll(io.LimitReader(req.Body, 4<<20))
			w.mu.Lock()
			defer w.mu.Unlock()
			s := cmp.Or(w.now, &script{}) // without a script no webhook has an opinion
			if err == nil {
				body, err = answer(s, strings.TrimPrefix(req.URL.Path, path), body)
			}
			if err != nil { // an API server does not repeat a request after this code
				http.Error(out, err.Error(), http.StatusBadRequest)
				return
			}
			out.Header().Set("Content-Type", "application/json")
			_, _ = out.Write(body)
		})
	}
	return mux
}

// link returns the authorizer at a place of a chain. It is nil if there is none.
func link(chain []vectors.Authorizer, place string) *vectors.Authorizer {
	for i, a := range chain {
		mode := a.FailureMode
		if a.Error {
			mode = vectors.FailNoOpinion
		}
		if placeOf(i, mode) == place {
			return &chain[i]
		}
	}
	return nil
}

func (w *webhooks) access(s *script, place string, body []byte) ([]byte, error) {
	spec, err := w.wire.DecodeAccess(body)
	if err != nil {
		return nil, err
	}
	var status vectors.SubjectAccessReviewStatus
	isOther := spec.User != s.user || spec.ResourceAttributes == nil || spec.ResourceAttributes.Group == "authorization.k8s.io"
	if isOther || place == behindAll { // RBAC allows a SelfSubjectAccessReview itself
		status.Allowed = spec.User == s.user && s.behind == vectors.Allow
		return w.wire.AnswerAccess(status)
	}
	a, check := link(s.chain, place), ""
	if spec.ResourceAttributes.Verb != s.verb {
		a, check = link(s.compound, place), second
	}
	if a == nil {
		return w.wire.AnswerAccess(status)
	}
	s.events, s.modes = append(s.events, check+asked+" "+a.Name), append(s.modes, spec.Mode())
	if a.Error {
		return nil, errRefused
	}
	status = a.Answer()
	if spec.Mode() == vectors.None && a.Status == nil && a.Decision == vectors.Conditional {
		status = vectors.SubjectAccessReviewStatus{
			Denied: slices.ContainsFunc(a.Conditions, func(c vectors.EvaluatedCondition) bool { return c.Effect == vectors.Deny }),
		}
	}
	answer, err := w.wire.AnswerAccess(status)
	if sent, readErr := w.wire.ReadAccess(answer); err == nil && readErr == nil && sent.ConditionsChain != nil {
		s.answeredSets[check+a.Name] = sent.ConditionsChain
	}
	return answer, err
}

// conditions answers an AuthorizationConditionsReview. The review must have the authorizer's own sets and the object of
// the request.
func (w *webhooks) conditions(s *script, place string, body []byte) ([]byte, error) {
	q, err := w.wire.DecodeConditions(body)
	if err != nil {
		return nil, err
	}
	for check, chain := range map[string][]vectors.Authorizer{"": s.chain, second: s.compound} {
		a := link(chain, place)
		if a == nil || !reflect.DeepEqual(q.ConditionSets, s.answeredSets[check+a.Name]) {
			continue
		}
		s.versions = append(s.versions, versionsOf(q.ConditionData)...)
		event, number := check+evaluates+" "+a.Name, numberOf(s.object, q.ConditionData)
		if number != 0 {
			event += fmt.Sprint(forObject, number)
		}
		if s.events = append(s.events, event); a.Cannot {
			return nil, errRefused
		}
		d, failed := evaluate(a, q.ConditionSets, max(number, 0))
		d = cmp.Or(s.insists, d)
		out := vectors.AuthorizationConditionsResponse{
			Allowed: d == vectors.Allow,
			Denied:  d == vectors.Deny,
			Reason:  explain(a, d, max(number, 0)),
		}
		if failed {
			out.EvaluationError = "a condition is in error"
		}
		return w.wire.AnswerConditions(q.UID, out)
	}
	s.events = append(s.events, evaluates+" what nobody has answered")
	return nil, errors.New("these are not the conditions that were answered")
}

// objectsOf reports whether an operation has an object, and whether it has an old object.
var objectsOf = map[string][2]bool{"CREATE": {true, false}, "UPDATE": {true, true}, "DELETE": {false, true}, "CONNECT": {true, false}}

// isWhole reports whether data has exactly the objects that admission has for the operation.
func isWhole(data vectors.ConditionData) bool {
	if data.Operation == "CONNECT" && data.Options != nil {
		return false
	}
	return objectsOf[data.Operation] == [2]bool{data.Object != nil, data.OldObject != nil}
}

// numberOf returns the number of an object, from the end of its name. It is -1 if the object is not part of the
// request, or if the data is not complete.
func numberOf(prefix string, data vectors.ConditionData) (n int) {
	if !isWhole(data) {
		return -1
	}
	for _, o := range []vectors.Object{data.Object, data.OldObject} {
		metadata, _ := o["metadata"].(map[string]any)
		name, _ := metadata["name"].(string)
		if _, err := fmt.Sscanf(strings.TrimPrefix(name, prefix), "-%d", &n); err == nil || data.Operation == "CONNECT" {
			return n
		}
	}
	return -1
}

func evaluate(a *vectors.Authorizer, sets []vectors.ConditionSet, object int) (d vectors.Decision, failed bool) {
	for _, set := range vectors.Leaves(sets) {
		d = (&vectors.SubjectAccessReviewStatus{Allowed: set.Allowed, Denied: set.Denied}).Decision()
		var effects []vectors.Decision
		var truths []vectors.Truth
		for _, c := range set.Conditions {
			truth := a.Truths[c.ID]
			if i := slices.IndexFunc(a.Conditions, func(condition vectors.EvaluatedCondition) bool { return condition.ID == c.ID }); i >= 0 {
				truth = a.Conditions[i].PerObject[min(object, len(a.Conditions[i].PerObject)-1)]
			}
			effects, truths = append(effects, c.Effect), append(truths, truth)
		}
		if d == vectors.NoOpinion {
			var err bool
			d, err = model.Evaluate(set.FailureMode, effects, truths)
			failed = failed || err
		}
		if d != vectors.NoOpinion {
			return d, failed
		}
	}
	return vectors.NoOpinion, failed
}

// versionsOf returns the versions of the two objects, if they exist.
func versionsOf(data vectors.ConditionData) (versions []string) {
	for name, o := range map[string]vectors.Object{"object": data.Object, "oldObject": data.OldObject} {
		if o != nil {
			versions = append(versions, fmt.Sprintf("%s %v", name, o["apiVersion"]))
		}
	}
	slices.Sort(versions)
	return versions
}

// explain returns the ID and the description of the first condition that has led to a decision, which is the reason of
// it.
func explain(a *vectors.Authorizer, d vectors.Decision, object int) string {
	for _, c := range a.Conditions {
		isTrue := c.PerObject[min(object, len(c.PerObject)-1)] == vectors.True
		if isTrue && c.Effect == d {
			return strings.TrimSpace(c.ID + " " + c.Description)
		}
	}
	return ""
}

// kubeconfig returns the kubeconfig of a webhook, with a context for each kind of review.
func kubeconfig(l *recorder.Server, place string) ([]byte, error) {
	c := clientcmdapi.NewConfig()
	c.AuthInfos["apiserver"], c.CurrentContext = clientcmdapi.NewAuthInfo(), "authorize"
	for name, path := range map[string]string{"authorize": "/authorize/", reference.ConditionsContext: reference.ConditionsPath + "/"} {
		c.Clusters[name] = &clientcmdapi.Cluster{Server: l.URL + path + place, CertificateAuthorityData: l.CA}
		c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: "apiserver"}
	}
	return clientcmd.Write(*c)
}
