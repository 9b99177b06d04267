package recorder

// scan reads the head of a review that is written as API servers write them: known fields once each, of the right
// types, plain ASCII strings. It exists because decoding every review as it arrived made the recorder a third
// slower, over the wire, than a webhook that records nothing; with scan the handler takes a sixth of the time.
//
// It never judges. It returns false for whatever it does not know, such as an escape, a null or a new field, and
// the decoder decides then. Where it returns true, the decoder would have accepted the review with the same head;
// a fuzz test holds that.
func scan(body []byte) (head, bool) {
	s := scanner{in: body}
	var r scanned
	ok := s.object(r.top) && s.end()
	if !ok || r.kind != kind {
		return head{}, false
	}
	h := head{user: r.user, probe: r.probe}
	grouped := r.groups
	switch r.apiVersion {
	case v1:
		h.apiVersion = v1
	case v1beta1:
		h.apiVersion, grouped = v1beta1, r.group
	default:
		return head{}, false
	}
	somebody := r.user != "" || grouped
	oneQuestion := r.seen&fieldResource != 0 != (r.seen&fieldNonResource != 0)
	return h, somebody && oneQuestion
}

// field is one that decides the head, or that must not be there twice.
type field uint

const (
	fieldAPIVersion field = 1 << iota
	fieldKind
	fieldSpec
	fieldUser
	fieldGroup
	fieldGroups
	fieldExtra
	fieldResource
	fieldNonResource
)

// scanned is what scan has seen of a review so far.
type scanned struct {
	seen                   field
	apiVersion, kind, user string
	group, groups          bool // the list of v1beta1, of v1, is not empty
	probe                  bool
}

// first notes a field. The decoder lets a later one of the same name win, or merges them; scan leaves that to it.
func (r *scanned) first(f field) bool {
	again := r.seen&f != 0
	r.seen |= f
	return !again
}

func (r *scanned) top(s *scanner, key []byte) bool {
	switch string(key) {
	case "apiVersion":
		return r.first(fieldAPIVersion) && s.keep(&r.apiVersion)
	case "kind":
		return r.first(fieldKind) && s.keep(&r.kind)
	case "metadata":
		return s.object(metadataField)
	case "spec":
		return r.first(fieldSpec) && s.object(r.spec)
	case "status":
		return s.object(statusField)
	}
	return false
}

func (r *scanned) spec(s *scanner, key []byte) bool {
	switch string(key) {
	case "user":
		return r.first(fieldUser) && s.keep(&r.user)
	case "uid":
		return s.skipString()
	case "groups":
		return r.first(fieldGroups) && s.strings(&r.groups)
	case "group":
		return r.first(fieldGroup) && s.strings(&r.group)
	case "extra":
		return r.first(fieldExtra) && s.object(r.extra)
	case "resourceAttributes":
		return r.first(fieldResource) && s.object(resourceField)
	case "nonResourceAttributes":
		return r.first(fieldNonResource) && s.object(nonResourceField)
	}
	return false
}

func (r *scanned) extra(s *scanner, key []byte) bool {
	if string(key) == ProbeExtraKey {
		r.probe = true
	}
	return s.strings(nil)
}

// metadataField is the one that API servers before 1.34 write.
func metadataField(s *scanner, key []byte) bool {
	return string(key) == "creationTimestamp" && s.word("null")
}

func statusField(s *scanner, key []byte) bool {
	return string(key) == "allowed" && s.word("false")
}

func resourceField(s *scanner, key []byte) bool {
	switch string(key) {
	case "namespace", "verb", "group", "version", "resource", "subresource", "name":
		return s.skipString()
	case "fieldSelector", "labelSelector":
		return s.object(selectorField)
	}
	return false
}

func nonResourceField(s *scanner, key []byte) bool {
	switch string(key) {
	case "path", "verb":
		return s.skipString()
	}
	return false
}

func selectorField(s *scanner, key []byte) bool {
	return string(key) == "requirements" && s.array(func(s *scanner) bool { return s.object(requirementField) })
}

func requirementField(s *scanner, key []byte) bool {
	switch string(key) {
	case "key", "operator":
		return s.skipString()
	case "values":
		return s.strings(nil)
	}
	return false
}

// scanner walks over JSON without taking memory. Each method moves past what it is named after, with the space
// around it, and returns false where it finds anything else.
type scanner struct {
	in []byte
	at int
}

func (s *scanner) space() {
	for s.at < len(s.in) {
		switch s.in[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

func (s *scanner) end() bool { return s.at == len(s.in) }

// punct moves past one character of punctuation.
func (s *scanner) punct(c byte) bool {
	s.space()
	if s.at == len(s.in) || s.in[s.at] != c {
		return false
	}
	s.at++
	s.space()
	return true
}

func (s *scanner) word(w string) bool {
	if len(s.in)-s.at < len(w) || string(s.in[s.at:s.at+len(w)]) != w {
		return false
	}
	s.at += len(w)
	s.space()
	return true
}

// text is a string that stands for itself: printable ASCII without escapes.
func (s *scanner) text() ([]byte, bool) {
	if s.at == len(s.in) || s.in[s.at] != '"' {
		return nil, false
	}
	from := s.at + 1
	for i := from; i < len(s.in); i++ {
		switch c := s.in[i]; {
		case c == '"':
			s.at = i + 1
			s.space()
			return s.in[from:i], true
		case c == '\\' || c < ' ' || c > '~':
			return nil, false
		}
	}
	return nil, false
}

func (s *scanner) skipString() bool {
	_, ok := s.text()
	return ok
}

// keep stores a string, without taking memory for the ones that are known.
func (s *scanner) keep(to *string) bool {
	t, ok := s.text()
	switch string(t) {
	case v1:
		*to = v1
	case v1beta1:
		*to = v1beta1
	case kind:
		*to = kind
	default:
		*to = string(t)
	}
	return ok
}

// strings is a list of strings. It notes that there are some, if that matters.
func (s *scanner) strings(some *bool) bool {
	return s.array(func(s *scanner) bool {
		if some != nil {
			*some = true
		}
		return s.skipString()
	})
}

func (s *scanner) array(element func(*scanner) bool) bool {
	if !s.punct('[') {
		return false
	}
	for first := true; !s.punct(']'); first = false {
		if !first && !s.punct(',') || !element(s) {
			return false
		}
	}
	return true
}

func (s *scanner) object(value func(*scanner, []byte) bool) bool {
	if !s.punct('{') {
		return false
	}
	for first := true; !s.punct('}'); first = false {
		if !first && !s.punct(',') {
			return false
		}
		key, ok := s.text()
		if !ok || !s.punct(':') || !value(s, key) {
			return false
		}
	}
	return true
}
