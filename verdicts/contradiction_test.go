package verdicts

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// TestFindContradiction checks that the user of an event, its decision and its answer have to fit together.
func TestFindContradiction(t *testing.T) {
	const alice, proxy = "alice@corp", "system:serviceaccount:periscope:periscope"
	byRBAC := func(subject string) string {
		return `RBAC: allowed by RoleBinding "a/b" of Role "b" to ` + subject
	}
	for name, c := range map[string]struct {
		as, group, decision, reason, message string
		wrong                                bool
	}{
		"allowed":                    {as: alice, decision: "allow", reason: byRBAC(`User "alice@corp"`)},
		"allowed to a group":         {as: alice, group: "dev", decision: "allow", reason: byRBAC(`Group "dev"`)},
		"allowed to an account":      {decision: "allow", reason: byRBAC(`ServiceAccount "periscope/periscope"`)},
		"allowed to the privileged":  {as: alice, group: "system:masters", decision: "allow"},
		"not found":                  {as: alice, decision: "allow", reason: byRBAC(`User "alice@corp"`), message: `pods "none" not found`},
		"refused":                    {as: `a"b`, decision: "forbid", message: `pods "x" is forbidden: User "a\"b" cannot list resource "pods"`},
		"refused with brackets":      {as: `a<b>&c`, decision: "forbid", message: `pods "x" is forbidden: User "a&lt;b&gt;&amp;c" cannot list resource "pods"`},
		"allowed with a quote":       {as: `a"b\`, decision: "allow", reason: byRBAC(`User "a\"b\\"`)},
		"allowed, of another script": {as: "ä\u200bb", decision: "allow", reason: byRBAC(`User "ä\u200bb"`)},
		"not impersonated":           {message: `users "x" is forbidden: User "` + proxy + `" cannot impersonate resource "users"`},
		"not impersonated either":    {message: `users.authentication.k8s.io "x" is forbidden: User "` + proxy + `" cannot impersonate:user-info resource "users"`},

		"gone before it was decided": {as: alice, reason: failedReason},
		"allowed to another":         {as: alice, decision: "allow", reason: byRBAC(`User "bob@corp"`), wrong: true},
		"allowed to a longer name":   {as: `a"b`, decision: "allow", reason: byRBAC(`User "a\"bc"`), wrong: true},
		"allowed to a group of none": {as: alice, decision: "allow", reason: byRBAC(`Group "dev"`), wrong: true},
		"allowed for no reason":      {as: alice, decision: "allow", wrong: true},
		"privileged for a reason":    {as: alice, group: "system:masters", decision: "allow", reason: byRBAC(`User "alice@corp"`), wrong: true},
		"allowed, and refused":       {as: alice, decision: "allow", reason: byRBAC(`User "alice@corp"`), message: `pods "x" is forbidden: User "alice@corp" cannot list resource "pods"`, wrong: true},
		"refused, and allowed":       {as: alice, decision: "forbid", reason: byRBAC(`User "alice@corp"`), wrong: true},
		"another was refused":        {as: alice, decision: "forbid", message: `pods "x" is forbidden: User "` + proxy + `" cannot list resource "pods"`, wrong: true},
		"refused without a decision": {message: `pods "x" is forbidden: User "` + proxy + `" cannot list resource "pods"`, wrong: true},
	} {
		e := &auditv1.Event{
			User:           authenticationv1.UserInfo{Username: proxy},
			Annotations:    map[string]string{},
			ResponseStatus: &metav1.Status{Message: c.message},
		}
		if c.as != "" {
			e.ImpersonatedUser = &authenticationv1.UserInfo{Username: c.as, Groups: []string{c.group}}
		}
		if c.decision+c.reason != "" {
			e.Annotations = map[string]string{reasonAnnotation: c.reason}
			if c.decision != "" {
				e.Annotations[decisionAnnotation] = c.decision
			}
		}
		if why := FindContradiction(e); (why != "") != c.wrong {
			t.Errorf("%s: %q", name, why)
		}
	}
}
