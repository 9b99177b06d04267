package certify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	apiV1      = "authorization.k8s.io/v1"
	apiV1beta1 = "authorization.k8s.io/v1beta1"
	reviewKind = "SubjectAccessReview"
)

// apiVersion is that of the vector's review.
func (v Question) apiVersion() string {
	if v.Form == v1beta1 {
		return apiV1beta1
	}
	return apiV1
}

// body is what is posted.
func (v Question) body() ([]byte, error) {
	if v.Form == literal {
		return v.Body, nil
	}
	types := metav1.TypeMeta{APIVersion: v.apiVersion(), Kind: reviewKind}
	raw, err := json.Marshal(authorizationv1.SubjectAccessReview{TypeMeta: types, Spec: v.Spec})
	switch {
	case err != nil:
		return nil, err
	case v.Form == v1beta1:
		// The only difference. Within a string the quotes would be escaped.
		return bytes.Replace(raw, []byte(`"groups":[`), []byte(`"group":[`), 1), nil
	case v.Form == reversed:
		return reverseExtra(raw, v.Spec.Extra)
	case v.Form == unknownFields:
		// What a server with KEP-5681 or a later one might add.
		raw = bytes.Replace(raw, []byte(`"spec":{`), []byte(`"spec":{"aFieldOfTomorrow":{"deep":[1,null,"x"]},`), 1)
		return bytes.Replace(raw, []byte(`{`), []byte(`{"anotherField":true,`), 1), nil
	}
	return raw, nil
}

// reverseExtra writes the keys of extra in the reverse order. encoding/json sorts them.
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
