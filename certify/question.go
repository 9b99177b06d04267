package certify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

type spec = authorizationv1.SubjectAccessReviewSpec

// Form is how a review is written.
type Form string

// These are the forms. Without a form a review is written in v1, as client-go writes it.
const (
	v1beta1       Form = "v1beta1"
	unknownFields Form = "unknown-fields"
	reversed      Form = "extras-reversed"
	// literal is the form of a body that is sent unchanged.
	literal Form = "literal"
)

// Question is an access review that certification asks, with the answer that the policy gives. Each has a name, by which
// `explain` and findings refer to it.
type Question struct {
	// ID is unique for a seed.
	ID    string
	Level CertificationLevel
	Form  Form
	Spec  spec
	// Body is what is sent in form literal, with Method unless that is empty (POST).
	Body   []byte
	Method string
	// Expect is the decision of the policy. It is empty if the request must be refused.
	Expect scenarios.Decision
	// Reason is the name of a wrong decision.
	Reason string
	// ExplainsFaults means that what the question is about may also make a webhook break off or refuse to answer. Such a
	// fault then has the name Reason, too.
	ExplainsFaults bool
	// Paired is set if the question differs from another one in one attribute only, and in the decision. Both are also
	// asked at the same time.
	Paired bool
	// Base is the question that this one repeats in other circumstances. If that question is answered wrongly, this one
	// shows nothing new.
	Base string
}

// apiVersion returns the version of SubjectAccessReview in which the question is asked.
func (v Question) apiVersion() string {
	if v.Form == v1beta1 {
		return reference.V1beta1
	}
	return reference.V1
}

// body returns what is sent, in the form of the question.
func (v Question) body() ([]byte, error) {
	if v.Form == literal {
		return v.Body, nil
	}
	types := metav1.TypeMeta{APIVersion: v.apiVersion(), Kind: reference.Kind}
	raw, err := json.Marshal(authorizationv1.SubjectAccessReview{TypeMeta: types, Spec: v.Spec})
	switch {
	case err != nil:
		return nil, err
	case v.Form == v1beta1:
		// v1beta1 differs only in this field, and older servers write the metadata so. Within a string the quotes would
		// be escaped.
		raw = bytes.Replace(raw, []byte(`"metadata":{}`), []byte(`"metadata":{"creationTimestamp":null}`), 1)
		return bytes.Replace(raw, []byte(`"groups":[`), []byte(`"group":[`), 1), nil
	case v.Form == reversed:
		return reverseExtra(raw, v.Spec.Extra)
	case v.Form == unknownFields:
		// These are fields that a server with KEP-5681 or a later change might add.
		raw = bytes.Replace(raw, []byte(`"spec":{`), []byte(`"spec":{"aFieldOfTomorrow":{"deep":[1,null,"x"]},`), 1)
		raw = bytes.Replace(raw, []byte(`esourceAttributes":{`), []byte(`esourceAttributes":{"anAttributeOfTomorrow":["y"],`), 1)
		return bytes.Replace(raw, []byte(`{`), []byte(`{"anotherField":true,`), 1), nil
	}
	return raw, nil
}

// reverseExtra writes the keys of extra in reverse order, because encoding/json sorts them.
func reverseExtra(raw []byte, extra map[string]authorizationv1.ExtraValue) ([]byte, error) {
	sorted, err := json.Marshal(extra)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, k := range slices.Backward(slices.Sorted(maps.Keys(extra))) {
		values, err := json.Marshal(extra[k])
		if err != nil {
			return nil, err
		}
		if out.Len() > 0 {
			out.WriteByte(',')
		}
		_, _ = fmt.Fprintf(&out, "%q:%s", k, values)
	}
	return bytes.Replace(raw, sorted, []byte("{"+out.String()+"}"), 1), nil
}
