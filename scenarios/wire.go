package scenarios

import (
	"encoding/json"
	"maps"
	"slices"
)

// PatchType is a kind of patch.
type PatchType string

// The kinds of patches, by the names that kubectl patch has for them.
const (
	MergePatch     PatchType = "merge"
	StrategicPatch PatchType = "strategic"
	JSONPatch      PatchType = "json"
	// ApplyPatch is server-side apply.
	ApplyPatch PatchType = "apply"
)

var contentTypes = map[PatchType]string{
	MergePatch:     "application/merge-patch+json",
	StrategicPatch: "application/strategic-merge-patch+json",
	JSONPatch:      "application/json-patch+json",
	ApplyPatch:     "application/apply-patch+yaml",
}

// Upgrade is a protocol that a connection is upgraded to.
type Upgrade string

const (
	// WebSocket is asked for with GET.
	WebSocket Upgrade = "websocket"
	// SPDY is what clients used before; it is asked for with POST.
	SPDY Upgrade = "spdy"
	// Tunnel is SPDY within a WebSocket, which is how port-forward asks since it uses WebSockets; it is asked for
	// with GET.
	Tunnel Upgrade = "tunnel"
)

// Headers are those that ask for the upgrade.
func (u Upgrade) Headers() map[string]string {
	const streams = "v5.channel.k8s.io"
	protocol := streams
	switch u {
	case WebSocket, Tunnel:
		if u == Tunnel {
			protocol = "SPDY/3.1+portforward.k8s.io"
		}
		return map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
			// Any 16 bytes: the server proves with them that it speaks the protocol.
			"Sec-WebSocket-Key": "YXV0aHpjb25mLW5vbmNlLQ==", "Sec-WebSocket-Protocol": protocol,
		}
	case SPDY:
		return map[string]string{"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": streams}
	}
	return nil
}

// ContentType is the media type of the request's body.
func (r *Request) ContentType() string {
	switch {
	case r.Verb != "patch":
		return "application/json"
	case r.Patch == "":
		return contentTypes[MergePatch]
	}
	return contentTypes[r.Patch]
}

// Content is the body as it is sent, nil for none. JSON is YAML too.
func (r *Request) Content() (json.RawMessage, error) {
	switch {
	case r.Operations != nil:
		return json.Marshal(r.Operations)
	case r.Body != nil:
		return json.Marshal(r.Body)
	}
	return nil, nil
}

// wire checks how the request is sent.
func (c *checker) wire(r *Request, path []any) {
	enum(c, extend(path, "patch"), r.Patch, slices.Sorted(maps.Keys(contentTypes))...)
	enum(c, extend(path, "upgrade"), r.Upgrade, WebSocket, SPDY, Tunnel)
	if r.Patch != "" && r.Verb != "patch" {
		c.fail(extend(path, "patch"), "patch is given with the verb %s (expected it with patch only)", r.Verb)
	}
	if (r.Operations != nil) != (r.Patch == JSONPatch) && !c.src.failedAt(path) {
		c.fail(path, "only one of operations and patch: json is given (expected both)")
	}
	if r.Operations != nil && r.Body != nil {
		c.fail(extend(path, "body"), "body is given beside operations (expected one of the two)")
	}
}
