package scenarios

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/textproto"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/internal/seq"
)

// Suffix derives the end of unique names, six characters, the first a letter, from a seed and what it is for.
func Suffix(seed int64, parts ...string) string {
	h := sha256.New()
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(seed))
	h.Write(b[:])
	for _, p := range parts {
		addDigest(h, []byte(p))
	}
	// 64 bits over 1.6e9 suffixes: the bias is far below what matters here.
	n := binary.BigEndian.Uint64(h.Sum(nil))
	const letters, all = "abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, 6)
	out[0] = letters[n%26]
	n /= 26
	for i := 1; i < len(out); i++ {
		out[i] = all[n%36]
		n /= 36
	}
	return string(out)
}

// Bind returns a copy of the scenario in which every unique name has "-" and the suffix appended, and what each
// name became. Scenarios bound with different suffixes share no requestor, namespace or object, so they can run
// side by side, and no cache of the API server carries anything from one to the other.
//
// Names are found where the format says that something is a name (requestors, grants, namespaces, metadata.name of
// manifests, impersonated users, subjects of bindings) and are replaced in every string of requestors, manifests,
// objects, grants and steps, see Rename. Left as they are: the identity of the scenario (ID, description, source,
// requires, documented, twin), map keys, aliases and grant IDs, step names, and the fields that hold no names
// (verbs, API groups, versions, resources, kinds).
//
// An RBAC object whose name is also a verb, as in the examples of KEP-5284, is renamed only where the name stands
// for the object: in metadata.name and in roleRef.
func (s *Scenario) Bind(suffix string) (*Scenario, map[string]string) { return s.BindOn(suffix, nil) }

// BindOn is Bind for a cluster with these nodes: the first of the scenario's Nodes becomes the first of them, and
// so on. Placeholders without a node stay as they are.
func (s *Scenario) BindOn(suffix string, nodes []string) (*Scenario, map[string]string) {
	names := map[string]string{}
	for i, placeholder := range s.Nodes[:min(len(s.Nodes), len(nodes))] {
		names[placeholder] = nodes[i]
	}
	roles := sets.New[string]()
	for _, n := range s.findNames() {
		names[n.name] = n.name + "-" + suffix
		if n.kind == roleName {
			roles.Insert(n.name)
		}
	}
	inText := names
	if len(roles) > 0 {
		inText = make(map[string]string, len(names))
		clash := ambiguous(roles, s.words())
		for from, to := range names {
			if _, skip := clash[from]; !skip {
				inText[from] = to
			}
		}
	}
	out := renamed(&binder{text: newRenamer(inText), exact: names}, *s)
	out.Suffix = suffix
	return &out, names
}

// binder copies a scenario with names replaced in every string but those of named types (an outcome is not a
// name) and of fields tagged `bind:"keep"`. It keeps the difference between nil and empty.
type binder struct {
	text  *renamer
	exact map[string]string // of whole values, for names of RBAC objects
}

func renamed[T any](b *binder, from T) (out T) {
	b.copy(reflect.ValueOf(&out).Elem(), reflect.ValueOf(&from).Elem(), false)
	return out
}

// Clone is a copy of the scenario that shares nothing with it.
func (s *Scenario) Clone() *Scenario { return new(renamed(&binder{text: newRenamer(nil)}, *s)) }

func (b *binder) copy(to, from reflect.Value, keep bool) {
	switch from.Kind() {
	case reflect.String:
		to.Set(from)
		if !keep && from.Type() == reflect.TypeFor[string]() {
			to.SetString(b.text.rename(from.String()))
		}
	case reflect.Struct:
		for i, kept := range keptFields(from.Type()) {
			if field := from.Field(i); !field.IsZero() { // to is
				b.copy(to.Field(i), field, keep || kept)
			}
		}
	case reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(from.Type().Elem()))
			b.copy(to.Elem(), from.Elem(), keep)
		}
	case reflect.Slice:
		if !from.IsNil() {
			to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
			for i := range from.Len() {
				b.copy(to.Index(i), from.Index(i), keep)
			}
		}
	case reflect.Map:
		if object, ok := from.Interface().(map[string]any); ok {
			to.Set(reflect.ValueOf(b.manifest(object)))
		} else if !from.IsNil() {
			to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
			for _, k := range from.MapKeys() {
				v := reflect.New(from.Type().Elem()).Elem()
				b.copy(v, from.MapIndex(k), keep)
				to.SetMapIndex(k, v)
			}
		}
	default:
		to.Set(from)
	}
}

// keptOf has what keptFields has said.
var keptOf sync.Map

// keptFields says of each field of a type whether it is tagged `bind:"keep"`.
func keptFields(t reflect.Type) []bool {
	if kept, ok := keptOf.Load(t); ok {
		return kept.([]bool)
	}
	kept := make([]bool, t.NumField())
	for i := range kept {
		kept[i] = t.Field(i).Tag.Get("bind") == "keep"
	}
	keptOf.Store(t, kept)
	return kept
}

// nameless are the fields of Kubernetes objects that hold no names. Only their strings and lists of strings are
// left alone: a pod's "resources" is a mapping.
var nameless = map[string]bool{
	"apiVersion": true, "kind": true, "apiGroup": true, "apiGroups": true, "verb": true, "verbs": true,
	"resource": true, "resources": true, "subresource": true, "version": true, tokenField: true,
}

// tokenField holds the alias of a requestor in the body of a TokenReview, which may be an account's name too.
const tokenField = "token"

func (b *binder) manifest(m map[string]any) map[string]any {
	if m == nil {
		return nil
	}
	out := rewritten("", m, func(field, text string) string {
		if nameless[field] {
			return text
		}
		return b.text.rename(text)
	}).(map[string]any)
	if isRBAC(m) {
		for _, field := range []string{"metadata", "roleRef"} {
			part, ok := out[field].(map[string]any)
			if to, known := b.exact[Text(m, field, "name")]; ok && known {
				part["name"] = to
			}
		}
	}
	return out
}

// rewritten is a copy of a value in which fn has written every text anew, told in which field it, or its list, is.
func rewritten(field string, value any, fn func(field, text string) string) any {
	switch v := value.(type) {
	case string:
		return fn(field, v)
	case []any:
		return seq.Map(v, func(x any) any { return rewritten(field, x, fn) })
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = rewritten(k, x, fn)
		}
		return out
	}
	return value
}

const (
	userHeader = "Impersonate-User"
	// maxHeader keeps a mistyped repetition from filling the memory. It is twice what an API server reads of a request.
	maxHeader = 2 << 20
)

// Header is one header line of a request, sent as it is written: for what client-go cannot send.
type Header struct {
	Name  string `json:"name" yaml:"name" bind:"keep"`           // sent in the case that it is written in
	Value string `json:"value,omitempty" yaml:"value,omitempty"` // the text behind the colon
	// Repeat writes Value that many times, for values that are too long to read.
	Repeat int `json:"repeat,omitempty" yaml:"repeat,omitempty"`
	// Hex are bytes behind Value, in hexadecimal, for what is not UTF-8.
	Hex string `json:"hex,omitempty" yaml:"hex,omitempty" bind:"keep"`
}

// Bytes is the whole value of the header.
func (h Header) Bytes() string {
	raw, _ := hex.DecodeString(h.Hex) // Load refuses what is not hexadecimal
	return strings.Repeat(h.Value, max(1, h.Repeat)) + string(raw)
}

// WantedUser is the name of the user that the request asks to impersonate, as it stands in reviews and audit
// events: JSON has U+FFFD for each byte that is not UTF-8. Of several headers the API server takes the first, and
// client-go's come before those that the scenario writes itself. It is empty if nobody is impersonated.
func (r *Request) WantedUser() string {
	if r.Impersonate != nil {
		return r.Impersonate.User
	}
	for _, h := range r.Headers {
		if isUserHeader(h) {
			return string([]rune(h.Bytes()))
		}
	}
	return ""
}

func isUserHeader(h Header) bool { return textproto.CanonicalMIMEHeaderKey(h.Name) == userHeader }

// ownHeaders are the headers that a scenario does not write itself: credentials, the audit event's ID, and what is about
// the body or the connection. One that ends with a dash is how names begin.
var ownHeaders = []string{"accept-encoding", "audit-id", "authorization", "connection", "content-", "cookie", "expect",
	"host", "keep-alive", "proxy-", "sec-websocket-", "te", "trailer", "transfer-encoding", "upgrade", "x-remote-"}

// headers checks the header lines that a scenario writes itself.
func (c *checker) headers(r *Request, path []any) {
	for i, h := range r.Headers {
		p := extend(path, "headers", i)
		c.missing(extend(p, "name"), h.Name == "", "the name of an impersonation header")
		switch {
		case h.Name == "":
		case slices.ContainsFunc(ownHeaders, func(own string) bool {
			name := strings.ToLower(h.Name)
			return name == own || strings.HasSuffix(own, "-") && strings.HasPrefix(name, own)
		}):
			c.fail(extend(p, "name"), "the header is %q (expected none of those that are not the scenario's to write: %s)", h.Name, strings.Join(ownHeaders, ", "))
		case strings.ContainsFunc(h.Name, notInToken):
			c.fail(extend(p, "name"), "the header %q has a character that no header name can have (expected it percent-encoded)", h.Name)
		}
		for _, before := range r.Headers[:i] {
			if before.Name != h.Name && strings.EqualFold(before.Name, h.Name) {
				c.fail(extend(p, "name"), "the header %q is there as %q too (expected one spelling: the order of the lines is not defined otherwise)", h.Name, before.Name)
			}
		}
		c.failIf(r.Impersonate != nil && isUserHeader(h) && h.Name != userHeader, extend(p, "name"),
			"the header %q is given beside impersonate (expected %s: the order of the lines is not defined otherwise)", h.Name, userHeader)
		if _, err := hex.DecodeString(h.Hex); err != nil {
			c.fail(extend(p, "hex"), "hex is %q (expected pairs of hexadecimal digits)", h.Hex)
		}
		if h.Repeat < 0 || len(h.Value)*h.Repeat > maxHeader {
			c.fail(extend(p, "repeat"), "repeat is %d (expected at most %d bytes in all)", h.Repeat, maxHeader)
			continue
		}
		if value := h.Bytes(); strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) || strings.Trim(value, " \t") != value {
			c.fail(p, "the value has control characters, or spaces around it (expected neither: they are not sent)")
		}
	}
}

// notInToken tells which characters a header name cannot have (RFC 9110).
func notInToken(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
