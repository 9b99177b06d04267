package upgrade

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/verdicts"
)

const writtenPath = "/apis/rbac.authorization.k8s.io/v1/clusterroles/lasting"

// writtenBody is a role as an API server writes it, with a rule for the ConfigMap of a name.
func writtenBody(version, name string) string {
	return `{"kind":"ClusterRole","metadata":{"name":"lasting","uid":"1","resourceVersion":"` + version + `"},"rules":[{"resourceNames":["` + name + `"]}]}`
}

// soundWrites are what is seen of writes on three stages where all is well: a role is created on the first, and patched on all.
func soundWrites() []*StageRecord {
	records := soundRecords()
	create := Write{
		Verb: WriteCreate, Path: writtenPath, Code: 201, After: writtenBody("1", "a"),
		Sent: json.RawMessage(`{"kind":"ClusterRole","metadata":{"name":"lasting"},"rules":[{"resourceNames":["a"]}]}`),
	}
	first := WrittenToken{Stage: "1", ID: "JTI=1", Seen: "JTI=1", User: "lasting"}
	for i, name := range []string{"b", "c", "d"} {
		patch := Write{
			Verb: WritePatch, Path: writtenPath, Code: 200, After: writtenBody("2"+name, name),
			Sent: json.RawMessage(`{"rules":[{"resourceNames":["` + name + `"]}]}`),
		}
		r := &WriteRecord{
			Writes:    []Write{patch},
			Tokens:    []WrittenToken{first},
			Decisions: []WrittenDecision{{User: name, Name: name, Granted: true, Allowed: true}},
		}
		if i == 0 {
			r.Writes = []Write{create, patch}
		} else {
			before := records[i-1].Writes.Writes
			r.Found = []ObjectState{{writtenPath, before[len(before)-1].After}}
		}
		records[i].Writes = r
	}
	return records
}

// TestWrites spoils what was seen of the writes on a path; the claim is about the stage that is named.
func TestWrites(t *testing.T) {
	for _, c := range []spoiledClaim{
		{"written", nil, 1, ClaimWrites, verdicts.Passed, "2 writes took effect, and what is granted is in force"},
		{"written on another stage", nil, 3, ClaimWrites, verdicts.Passed, "1 write took effect"},
		{"read on another stage", nil, 3, ClaimReadBack, verdicts.Passed, "1 object of earlier stages the same, byte for byte; 1 token authenticated"},
		{"nothing written", func(l []*StageRecord) { l[1].Writes = nil }, 2, ClaimWrites, verdicts.Invalid, "nothing was written"},
		{
			"refused", func(l []*StageRecord) {
				l[1].Writes.Writes[0] = Write{Verb: WritePatch, Path: writtenPath, Code: 422, Message: "unknown verb"}
			}, 2, ClaimWrites, verdicts.Failed, "patch " + writtenPath + ": refused with 422: unknown verb",
		},
		{
			"without effect", func(l []*StageRecord) { l[1].Writes.Writes[0].After = l[1].Writes.Found[0].Body }, 2, ClaimWrites,
			verdicts.Failed, "patch " + writtenPath + `: .rules[0].resourceNames[0] should be "c", and is "b"`,
		},
		{
			"a verb left out", func(l []*StageRecord) {
				l[0].Writes.Writes[0].After = strings.Replace(l[0].Writes.Writes[0].After, `"rules":[{"resourceNames":["a"]}]`, `"rules":[{}]`, 1)
			}, 1, ClaimWrites, verdicts.Failed, "create " + writtenPath + ": .rules[0].resourceNames should be ",
		},
		{
			"another object's ID", func(l []*StageRecord) {
				l[2].Writes.Writes[0].After = strings.Replace(l[2].Writes.Writes[0].After, `"uid":"1"`, `"uid":"2"`, 1)
			}, 3, ClaimWrites, verdicts.Failed, "patch " + writtenPath + `: .ownMetadata.uid should be "1", and is "2"`,
		},
		{
			"granted and not in force", func(l []*StageRecord) { l[1].Writes.Decisions[0].Allowed = false }, 2, ClaimWrites,
			verdicts.Failed, "c may get the ConfigMap c: false, and what was written grants: true",
		},
		{
			"taken away and in force", func(l []*StageRecord) { l[1].Writes.Decisions[0].Granted = false }, 2, ClaimWrites,
			verdicts.Failed, "c may get the ConfigMap c: true, and what was written grants: false",
		},
		{
			"changed between stages", func(l []*StageRecord) { l[2].Writes.Found[0].Body = writtenBody("2c", "b") }, 3, ClaimReadBack,
			verdicts.Failed, "1 object changed since the stage before; the first: " + writtenPath,
		},
		{"gone between stages", func(l []*StageRecord) { l[2].Writes.Found = nil }, 3, ClaimReadBack, verdicts.Failed, "1 object changed since the stage before; the first: " + writtenPath + " is gone"},
		{
			"a token that is not taken", func(l []*StageRecord) {
				l[2].Writes.Tokens[0] = WrittenToken{Stage: "1", ID: "JTI=1", Error: "invalid"}
			}, 3, ClaimReadBack,
			verdicts.Failed, `the token JTI=1 of 1 is taken for none of "": invalid`,
		},
		{"a token taken for another", func(l []*StageRecord) { l[2].Writes.Tokens[0].Seen = "JTI=2" }, 3, ClaimReadBack, verdicts.Failed, `the token JTI=1 of 1 is taken for JTI=2 of "lasting"`},
	} {
		t.Run(c.name, func(t *testing.T) { c.judge(t, soundWrites()) })
	}
}
