package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/authzconf/authzconf/conditional/model"
	"github.com/authzconf/authzconf/conditional/reference"
	"github.com/authzconf/authzconf/conditional/vectors"
	"github.com/authzconf/authzconf/conditional/wire"
	"github.com/authzconf/authzconf/engine/target"
)

// The events of a request, in the order in which they were seen. The first two are followed by a space and the name of an
// authorizer; those of the second check begin with second.
const (
	asked     = "asked"     // a SubjectAccessReview
	evaluates = "evaluates" // an AuthorizationConditionsReview
	admission = "admission" // a mutating webhook: the request is past the filter
	second    = "second "
	forObject = " for object " // stands behind the name for each but object 0: -1 is none of the request
)

// script is what the webhooks say while one request is under way.
type script struct {
	user, verb, object string
	chain, compound    []vectors.Authorizer
	// behind is what the last webhook says, which no vector has.
	behind vectors.Decision
	// answered are the sets that each link has answered with, by check and name.
	answered map[string][]vectors.ConditionSet
	events   []string
}

// webhooks are all authorizers of the chain, and a mutating admission webhook that marks the end of the authorization.
type webhooks struct {
	wire *wire.Revision
	mu   sync.Mutex
	now  *script
}

// Each link of a chain has two places, for its failure policy is the API server's configuration.
func placeOf(i int, mode vectors.FailureMode) string {
	return fmt.Sprintf("a%d-%s", i, strings.ToLower(string(mode)))
}

const behindAll = "behind"

var errRefused = errors.New("the authorizer's error")

func (w *webhooks) handler() http.Handler {
	mux := http.NewServeMux()
	serve := func(path string, answer func(place string, body []byte) ([]byte, error)) {
		mux.HandleFunc(path, func(out http.ResponseWriter, req *http.Request) {
			body, err := io.ReadAll(io.LimitReader(req.Body, 4<<20))
			w.mu.Lock()
			defer w.mu.Unlock()
			if err == nil {
				body, err = answer(req.PathValue("place"), body)
			}
			if err != nil { // no code at which an API server asks again
				http.Error(out, err.Error(), http.StatusBadRequest)
				return
			}
			out.Header().Set("Content-Type", "application/json")
			_, _ = out.Write(body)
		})
	}
	serve("/authorize/{place}", w.access)
	serve(reference.ConditionsPath+"/{place}", w.conditions)
	serve("/mutate", w.mutate)
	return mux
}

// link is the authorizer at a place, and which check it is asked about; nil if there is none.
func (s *script) link(place string, compound bool) (*vectors.Authorizer, string) {
	chain, check := s.chain, ""
	if compound {
		chain, check = s.compound, second
	}
	for i := range chain {
		mode := chain[i].FailureMode
		if chain[i].Error {
			mode = vectors.FailNoOpinion
		}
		if placeOf(i, mode) == place {
			return &chain[i], check
		}
	}
	return nil, check
}

// access answers a SubjectAccessReview.
func (w *webhooks) access(place string, body []byte) ([]byte, error) {
	spec, err := w.wire.DecodeAccess(body)
	if err != nil {
		return nil, err
	}
	s := w.now
	if s == nil || spec.User != s.user || spec.ResourceAttributes == nil {
		return w.wire.AnswerAccess(vectors.SubjectAccessReviewStatus{})
	}
	if place == behindAll {
		return w.wire.AnswerAccess(vectors.SubjectAccessReviewStatus{Allowed: s.behind == vectors.Allow})
	}
	a, check := s.link(place, spec.ResourceAttributes.Verb != s.verb)
	if a == nil {
		return w.wire.AnswerAccess(vectors.SubjectAccessReviewStatus{})
	}
	s.events = append(s.events, check+asked+" "+a.Name)
	if a.Error {
		return nil, errRefused
	}
	status := a.Answer()
	if check == second { // or nobody could tell its conditions from those of the first
		for i, set := range status.ConditionsChain {
			status.ConditionsChain[i].Conditions = slices.Clone(set.Conditions)
			for j := range set.Conditions {
				status.ConditionsChain[i].Conditions[j].Condition += " of create"
			}
		}
	}
	if spec.Mode() == vectors.None && a.Status == nil && a.Decision == vectors.Conditional {
		denies := slices.ContainsFunc(a.Conditions, func(c vectors.EvaluatedCondition) bool { return c.Effect == vectors.Deny })
		status = vectors.SubjectAccessReviewStatus{Denied: denies}
	}
	answer, err := w.wire.AnswerAccess(status)
	if err == nil && status.ConditionsChain != nil {
		var sent *vectors.SubjectAccessReviewStatus
		if sent, err = w.wire.ReadAccess(answer); err == nil {
			s.answered[check+a.Name] = sent.ConditionsChain
		}
	}
	return answer, err
}

// conditions answers an AuthorizationConditionsReview. Its sets have to be those that the link has answered with, and its
// object that of the request.
func (w *webhooks) conditions(place string, body []byte) ([]byte, error) {
	q, err := w.wire.DecodeConditions(body)
	if err != nil || w.now == nil {
		return nil, errors.Join(err, errors.New("there is no such review"))
	}
	s := w.now
	for _, compound := range []bool{false, true} {
		a, check := s.link(place, compound)
		if a == nil || !reflect.DeepEqual(q.ConditionSets, s.answered[check+a.Name]) {
			continue
		}
		object := numberOf(s.object, q.ConditionData)
		event := check + evaluates + " " + a.Name
		if object != 0 {
			event += fmt.Sprintf(forObject+"%d", object)
		}
		s.events = append(s.events, event)
		if a.Cannot {
			return nil, errRefused
		}
		d, failed := evaluate(a, q.ConditionSets, max(object, 0))
		out := vectors.AuthorizationConditionsResponse{Allowed: d == vectors.Allow, Denied: d == vectors.Deny}
		if failed {
			out.EvaluationError = "a condition is in error"
		}
		return w.wire.AnswerConditions(out)
	}
	s.events = append(s.events, evaluates+" what nobody has answered")
	return nil, errors.New("these are not the conditions that were answered")
}

// numberOf is the number of an object, by the end of its name; -1 if it is none of the request.
func numberOf(prefix string, data vectors.ConditionData) int {
	if data.Operation == "CONNECT" {
		return 0
	}
	for _, o := range []vectors.Object{data.Object, data.OldObject} {
		metadata, _ := o["metadata"].(map[string]any)
		name, _ := metadata["name"].(string)
		n := -1
		if _, err := fmt.Sscanf(strings.TrimPrefix(name, prefix), "-%d", &n); err == nil {
			return n
		}
	}
	return -1
}

// evaluate is what an authorizer makes of its sets.
func evaluate(a *vectors.Authorizer, sets []vectors.ConditionSet, object int) (d vectors.Decision, failed bool) {
	truths := map[string]vectors.Truth{}
	for id, truth := range a.Truths {
		truths[id] = truth
	}
	for _, c := range a.Conditions {
		truths[c.ID] = c.PerObject[min(object, len(c.PerObject)-1)]
	}
	for _, set := range vectors.Leaves(sets) {
		if d = (&vectors.SubjectAccessReviewStatus{Allowed: set.Allowed, Denied: set.Denied}).Decision(); d != vectors.NoOpinion {
			return d, failed
		}
		var effects []vectors.Decision
		var of []vectors.Truth
		for _, c := range set.Conditions {
			effects, of = append(effects, c.Effect), append(of, truths[c.ID])
		}
		d, err := model.Evaluate(set.FailureMode, effects, of)
		if failed = failed || err; d != vectors.NoOpinion {
			return d, failed
		}
	}
	return vectors.NoOpinion, failed
}

// mutate changes nothing.
func (w *webhooks) mutate(_ string, body []byte) ([]byte, error) {
	var in admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &in); err != nil || in.Request == nil {
		return nil, errors.New("the body is not an AdmissionReview with a request")
	}
	if s := w.now; s != nil && in.Request.UserInfo.Username == s.user && !slices.Contains(s.events, admission) {
		s.events = append(s.events, admission)
	}
	return json.Marshal(admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: true}})
}

// kubeconfig is that of a place, with a context for each of the reviews.
func kubeconfig(l *target.Loopback, place string) ([]byte, error) {
	c := clientcmdapi.NewConfig()
	c.AuthInfos["apiserver"] = clientcmdapi.NewAuthInfo()
	for name, path := range map[string]string{"authorize": "/authorize/", reference.ConditionsContext: reference.ConditionsPath + "/"} {
		c.Clusters[name] = &clientcmdapi.Cluster{Server: l.URL + path + place, CertificateAuthorityData: l.CA}
		c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: "apiserver"}
	}
	c.CurrentContext = "authorize"
	return clientcmd.Write(*c)
}
