package verdicts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/authzconf/authzconf/scenarios"
)

// told judges what the audit event says of the request itself: it has to be the one that was sent, by who sent it.
func (v *stepJudge) told() {
	ev := v.event
	if ev == nil {
		return
	}
	address, err := url.Parse(v.o.Request.URL)
	if err != nil {
		address = &url.URL{Path: v.o.Request.URL}
	}
	info, err := scenarios.RequestInfo(v.o.Request.Method, address)
	if err != nil {
		return // the API server answers such a request with an error, which the scenario states
	}
	user, stage := v.asker().Render(), auditv1.StageResponseComplete
	if v.o.Response.Code == codeUnauthorized {
		user, stage = scenarios.User{}.Render(), auditv1.StageResponseStarted
	}
	for _, c := range []struct{ field, want, got string }{
		{"audit.auditID", v.o.Response.AuditID, string(ev.AuditID)},
		{"audit.stage", string(stage), string(ev.Stage)},
		{"audit.verb", info.Verb, ev.Verb},
		{"audit.requestURI", v.o.Request.URL, ev.RequestURI},
		{"audit.user", user, scenarios.UserOf(ev.User.Username, ev.User.UID, ev.User.Groups, ev.User.Extra).Render()},
		{"audit.objectRef", v.wantedObject(info, ev), renderObject(ev.ObjectRef)},
		{"audit.responseStatus.code", strconv.Itoa(v.o.Response.Code), strconv.Itoa(eventCode(ev))},
	} {
		v.compare(c.field, c.want, c.got)
	}
}

func eventCode(ev *auditv1.Event) int {
	if ev.ResponseStatus == nil {
		return 0
	}
	return int(ev.ResponseStatus.Code)
}

// wantedObject is the object that a request is about. The API server takes the name from the body where the path
// has none, once it has read it.
func (v *stepJudge) wantedObject(info *request.RequestInfo, ev *auditv1.Event) string {
	if !info.IsResourceRequest {
		return renderObject(nil)
	}
	ref := &auditv1.ObjectReference{
		Resource: info.Resource, Subresource: info.Subresource, Namespace: info.Namespace, Name: info.Name,
		APIGroup: info.APIGroup, APIVersion: info.APIVersion,
	}
	var body struct {
		Metadata struct{ Name string }
	}
	if json.Unmarshal(v.o.Request.Body, &body) == nil && ev.ObjectRef != nil && ev.ObjectRef.Name != "" {
		ref.Name = cmp.Or(ref.Name, body.Metadata.Name)
	}
	return renderObject(ref)
}

func renderObject(r *auditv1.ObjectReference) string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("%s/%s of %s/%s, %q in %q", r.Resource, r.Subresource, r.APIGroup, r.APIVersion, r.Name, r.Namespace)
}

// userFields are those of a user in an audit event.
var userFields = []string{"extra", "groups", "uid", "username"}

// impersonatedUser is the impersonated user of an event as it is written there, with the names of fields that
// nobody knows.
func impersonatedUser(o *Observation, ev *auditv1.Event) string {
	u := ev.ImpersonatedUser
	if u == nil {
		return "no impersonatedUser"
	}
	text := scenarios.UserOf(u.Username, u.UID, u.Groups, u.Extra).Render()
	var raw struct {
		User map[string]json.RawMessage `json:"impersonatedUser"`
	}
	if err := json.Unmarshal(o.Audit, &raw); err != nil {
		return err.Error()
	}
	for _, field := range slices.Sorted(maps.Keys(raw.User)) {
		if !slices.Contains(userFields, field) {
			text += fmt.Sprintf(" %s=%s", field, raw.User[field])
		}
	}
	return text
}
