package vectors

import (
	"encoding/json"
	"testing"
)

// TestData checks that data is unchanged after a conversion to JSON and back: whole numbers stay whole, an empty object
// stays, and null becomes an absent object.
func TestData(t *testing.T) {
	var d ConditionData
	if err := json.Unmarshal([]byte(`{"object":{"n":5},"oldObject":null,"options":{},"impersonatedRequest":{"verb":"get","userInfo":{"username":"u"},"user":{"username":"other"}}}`), &d); err != nil {
		t.Fatal(err)
	}
	if n, ok := d.Object["n"].(int64); !ok || n != 5 || d.OldObject != nil || d.Options == nil {
		t.Errorf("%#v", d)
	}
	const want = `{"options":{},"object":{"n":5},"impersonatedRequest":{"verb":"get","apiGroup":"","apiVersion":"","resource":"","subresource":"","namespace":"","name":"","userInfo":{"username":"u"}}}`
	if raw, err := json.Marshal(d); err != nil || string(raw) != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, raw, want)
	}
}
