package scenarios_test

import (
	"reflect"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// TestAuditFields checks that the table has each field of AuditExpect, and that what is stated of an empty event is
// what is observed of it.
func TestAuditFields(t *testing.T) {
	typ, fields := reflect.TypeFor[scenarios.AuditExpect](), scenarios.AuditFields()
	if len(fields) != typ.NumField() {
		t.Fatalf("the table has %d fields, AuditExpect has %d", len(fields), typ.NumField())
	}
	for i, field := range fields {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if field.Name != name {
			t.Errorf("number %d of the table is %s, and of AuditExpect %s", i, field.Name, name)
		}
		var expect scenarios.AuditExpect
		if stated := field.Stated(&expect); stated != "" {
			t.Errorf("%s: an expectation without it states %s", name, stated)
		}
		value := reflect.ValueOf(&expect).Elem().Field(i)
		value.Set(reflect.New(value.Type().Elem()))
		if stated, observed := field.Stated(&expect), field.Observed(&auditv1.Event{}); stated != observed {
			t.Errorf("%s: the empty value is stated as %s, and an empty event has %s", name, stated, observed)
		}
	}
}
