package verdicts

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/scenarios"
)

const (
	// reasonAnnotation says why the final decision is as it is.
	reasonAnnotation = "authorization.k8s.io/reason"
	// failedReason is said where the authorizers broke, whatever broke.
	failedReason = "internal error"
	// anyReason is wanted where an authorizer may say what it likes.
	anyReason = "any"
	noReason  = "none"
)

// builtin is what RBAC says where a binding allows that every cluster has.
var builtin = regexp.MustCompile(`^RBAC: allowed by ClusterRoleBinding "(?:system:[^"]+|cluster-admin|kubeadm:[^"]+)" of ClusterRole "(?:system:[^"]+|cluster-admin|kubeadm:[^"]+)" to (?:User|Group|ServiceAccount) "([^"]+)"$`)

// reason judges what the audit event says of why the final decision is as it is: RBAC names the binding that allows,
// a refusal has the text of the answer, and of what never got so far there is nothing.
func (v *stepJudge) reason() {
	if v.event == nil || v.event.Stage == auditv1.StagePanic {
		return
	}
	got, there := v.event.Annotations[reasonAnnotation]
	if !there {
		got = noReason
	}
	want := noReason
	switch v.event.Annotations[decisionAnnotation] {
	case "allow":
		want = v.allowedBy(got)
	case "forbid":
		want = v.refusal(got)
	default:
		attempted := len(impersonationHeaders(v.o.Request)) > 0 && v.event.ImpersonatedUser == nil
		if v.o.Response.Code == codeServerError && !attempted {
			want = failedReason
		}
	}
	v.compare("audit.reason", want, orElse(want == anyReason, want, got))
	// The API server says so of a token that is stale or of an old kind; those of requestors are neither, unless a
	// scenario has made one stale.
	if want, got := v.stale(); want != got {
		v.compare("audit.annotations", want, orElse(got != "", got, noReason))
	}
	for _, key := range slices.Sorted(maps.Keys(v.event.Annotations)) {
		if strings.HasPrefix(key, "authentication.k8s.io/") && key != staleAnnotation {
			v.compare("audit.annotations", noReason, key+": "+v.event.Annotations[key])
		}
	}
}

// staleAnnotation is there for a token that was to be replaced before now (validator.Validate of claims.go).
const staleAnnotation = "authentication.k8s.io/stale-token"

// stale is what the API server should say of the age of the requestor's token, and what it says.
func (v *stepJudge) stale() (want, got string) {
	got = v.event.Annotations[staleAnnotation]
	sa := v.requestor.ServiceAccount
	if sa == nil || sa.At("warnafter") >= 0 {
		return orElse(got == "", "", noReason), got
	}
	since, text := -sa.At("warnafter"), "subject: "+v.requestor.Username()+", seconds after warning threshold: "
	want = fmt.Sprintf("%s%.0f or a little more", text, since.Seconds())
	seconds, err := strconv.Atoi(strings.TrimPrefix(got, text))
	if said := time.Duration(seconds) * time.Second; err == nil && said >= since && said < since+time.Hour {
		return want, want
	}
	return want, got
}

// allowedBy is the reason for which the scenario's grants allow the request. It is got itself if that can be one.
func (v *stepJudge) allowedBy(got string) string {
	u := v.event.User
	if v.event.ImpersonatedUser != nil {
		u = *v.event.ImpersonatedUser
	}
	if slices.Contains(u.Groups, user.SystemPrivilegedGroup) {
		return "" // before every authorizer
	}
	address, err := url.Parse(v.o.Request.URL)
	if err != nil || v.s.Requires.Chain != "" && !v.plainly() || v.e.Authorizer || escalates(v.s, v.index) {
		return orElse(got == noReason, "a reason", anyReason)
	}
	spec := authorizationv1.SubjectAccessReviewSpec{User: u.Username, Groups: u.Groups}
	info, err := scenarios.RequestInfo(v.o.Request.Method, address)
	switch {
	case err != nil:
		return anyReason
	case info.IsResourceRequest:
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb: info.Verb, Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource,
			Namespace: info.Namespace, Name: info.Name,
		}
	default:
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: info.Verb, Path: info.Path}
	}
	for _, r := range v.o.Reviews {
		if a := r.Spec.ResourceAttributes; r.Point == Policy && r.Decision == scenarios.Allow && r.Spec.User == u.Username && a != nil && info.IsResourceRequest &&
			a.Verb == info.Verb && a.Resource == info.Resource && a.Subresource == info.Subresource && a.Namespace == info.Namespace && a.Name == info.Name {
			return v.rule(r).Reason
		}
	}
	if m := builtin.FindStringSubmatch(got); m != nil && is(u, m[1]) {
		return got
	}
	all := v.s.AllowedBy(spec)
	// The Node authorizer stands before RBAC, and allows without a word.
	if slices.Contains(all, got) || got == "" && slices.Contains(u.Groups, user.NodesGroup) {
		return got
	}
	return cmp.Or(strings.Join(all, ", or "), "that of a binding which every cluster has")
}

// is says whether a binding's subject, as RBAC names it, is a user.
func is(u authenticationv1.UserInfo, subject string) bool {
	ns, name, ok := scenarios.SplitServiceAccount(u.Username)
	return subject == u.Username || slices.Contains(u.Groups, subject) || ok && subject == name+"/"+ns
}

// refusal is what stands behind the base of the answer's message, which ends with a quoted name, or at the cluster scope.
func (v *stepJudge) refusal(got string) string {
	st := v.status
	if st == nil || v.event.Verb == "watch" {
		return orElse(got == noReason, "a reason", anyReason)
	}
	if got != "" && strings.HasSuffix(st.Message, ": "+got) {
		return got
	}
	if at := strings.LastIndex(st.Message, " cannot "); at >= 0 && forbiddenEnd.MatchString(st.Message[at:]) {
		return ""
	}
	return "the end of the answer's message"
}

// forbiddenEnd matches the end of a refusal without a reason.
var forbiddenEnd = regexp.MustCompile(`^ cannot \S* (?:resource "[^"]*" in API group "[^"]*" (?:at the cluster scope|in the namespace "[^"]*")|path ".*")$`)
