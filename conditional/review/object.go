package review

import "k8s.io/apimachinery/pkg/util/json"

// Object is a JSON object, nil if there is none. Whole numbers in it are read as
// int64, as an API server reads them.
type Object map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (o *Object) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(raw, (*map[string]any)(o))
}

// ParseObject reads a JSON object; nothing and null are none.
func ParseObject(raw []byte) (o Object, err error) {
	if len(raw) > 0 {
		err = o.UnmarshalJSON(raw)
	}
	return o, err
}
