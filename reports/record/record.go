package record

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
)

// IndexFile is the name of the file that lists what was recorded, in the order in which it was recorded.
const IndexFile = "record.jsonl"

const (
	evidenceFolder = "evidence"
	plainSuffix    = ".json"
	packedSuffix   = ".json.gz"
)

// packFrom is the size in bytes from which a piece of evidence is compressed.
const packFrom = 1 << 20

// sizeLimit is how many bytes a piece of evidence may have when it is unpacked.
const sizeLimit = 256 << 20

// Entry is one line of the index.
type Entry struct {
	// File is the slash-separated path of the file in the report's folder.
	File string `json:"file"`
	// SHA256 is the digest of the file.
	SHA256 string `json:"sha256"`
	// Chain is the digest of the previous entry's Chain and of this entry's File and SHA256, one a line. So the Chain
	// of the last entry identifies all files and their order.
	Chain string `json:"chain"`
}

// Head identifies a whole record. A report contains it, and a signature of the report covers it.
type Head struct {
	// Entries is the number of files in the record.
	Entries int `json:"entries"`
	// Digest is the Chain of the last entry.
	Digest string `json:"digest"`
}

// Log is a record to which a run appends. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	entries []Entry
	files   map[string][]byte
	decoded map[string]any
}

// New returns an empty log, which is kept in memory until its files are written.
func New() *Log {
	return &Log{files: map[string][]byte{}, decoded: map[string]any{}}
}

// Append redacts a piece of evidence, stores it as JSON, and chains its digest to what was recorded before. The key is
// a slash-separated path, such as "1.37-gate-on/kep-5284/requests/get-by-name". Using a key twice is an error of the
// caller, because the record would no longer say what was seen first.
func (l *Log) Append(key string, evidence any) error {
	raw, err := EncodeJSON(evidence, "")
	if err == nil {
		raw, _, err = redactJSON(raw)
	}
	if err != nil {
		return fmt.Errorf("recording %s: %w", key, err)
	}
	if len(raw) < packFrom {
		return l.add(evidenceFile(key, plainSuffix), indent(raw))
	}
	packed, err := pack(raw)
	if err != nil {
		return fmt.Errorf("recording %s: %w", key, err)
	}
	return l.add(evidenceFile(key, packedSuffix), packed)
}

// AppendFile stores a file unchanged, such as the text of a scenario that was run. It refuses a file that contains
// something that looks like a credential, because redacting it would make it another text.
func (l *Log) AppendFile(name string, data []byte) error {
	if Redact(string(data)) != string(data) {
		return fmt.Errorf("%s holds what looks like a token or key, and would go into the report: take it out", name)
	}
	return l.add(name, data)
}

func (l *Log) add(name string, data []byte) error {
	if !fs.ValidPath(name) || strings.ContainsAny(name, "\\:") {
		return fmt.Errorf("%q cannot be the name of a file in a report", name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, exists := l.files[name]; exists {
		return fmt.Errorf("%s was recorded twice", name)
	}
	previous := ""
	if n := len(l.entries); n > 0 {
		previous = l.entries[n-1].Chain
	}
	l.files[name] = data
	l.entries = append(l.entries, newEntry(previous, name, data))
	return nil
}

func newEntry(previous, name string, data []byte) Entry {
	e := Entry{File: name, SHA256: Digest(data)}
	e.Chain = Digest([]byte(previous + "\n" + e.File + "\n" + e.SHA256 + "\n"))
	return e
}

// Digest returns the SHA-256 of data in hexadecimal digits.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Head returns the present head of the record.
func (l *Log) Head() Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return headOf(l.entries)
}

func headOf(entries []Entry) Head {
	if len(entries) == 0 {
		return Head{}
	}
	return Head{Entries: len(entries), Digest: entries[len(entries)-1].Chain}
}

// Files returns the files of the record with its index, by their paths in the report's folder.
func (l *Log) Files() (map[string][]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	index, err := encodeIndex(l.entries)
	if err != nil {
		return nil, err
	}
	files := maps.Clone(l.files)
	files[IndexFile] = index
	return files, nil
}

func encodeIndex(entries []Entry) ([]byte, error) {
	var index bytes.Buffer
	for _, e := range entries {
		line, err := EncodeJSON(e, "")
		if err != nil {
			return nil, err
		}
		index.Write(line)
	}
	return index.Bytes(), nil
}

// View returns the record for reading. It also shows what is appended later.
func (l *Log) View() View { return View{l} }

// View is a record that is read, while it is made or afterwards. It is safe for concurrent use.
type View struct{ log *Log }

// Has reports whether there is a piece of evidence under a key.
func (v View) Has(key string) bool {
	_, _, found := v.find(key)
	return found
}

func (v View) find(key string) (name string, data []byte, found bool) {
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	for _, suffix := range []string{plainSuffix, packedSuffix} {
		name = evidenceFile(key, suffix)
		if data, found = v.log.files[name]; found {
			return name, data, true
		}
	}
	return "", nil, false
}

// Keys returns the sorted keys of the pieces of evidence that begin with a prefix.
func (v View) Keys(prefix string) (keys []string) {
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	for name := range v.log.files {
		key, isEvidence := strings.CutPrefix(name, evidenceFolder+"/")
		if !isEvidence {
			continue
		}
		key = strings.TrimSuffix(strings.TrimSuffix(key, packedSuffix), plainSuffix)
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// File returns a file that was stored unchanged.
func (v View) File(name string) (data []byte, found bool) {
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	data, found = v.log.files[name]
	return data, found
}

// FilesIn returns the files below a folder that were recorded as they are, by their paths below it.
func (v View) FilesIn(folder string) map[string][]byte {
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	files := map[string][]byte{}
	for name, data := range v.log.files {
		if relative, isIn := strings.CutPrefix(name, folder+"/"); isIn {
			files[relative] = data
		}
	}
	return files
}

// EvidenceFile returns the path of the file with the evidence of a key, or "" if there is none.
func (v View) EvidenceFile(key string) string {
	name, _, _ := v.find(key)
	return name
}

// Read decodes a piece of evidence strictly. An unknown field is an error, and so is a key without evidence. Evidence
// that was read before is returned again, and must not be changed.
func Read[T any](v View, key string) (*T, error) {
	if known, ok := v.cached(key).(*T); ok {
		return known, nil
	}
	value, err := ReadOnce[T](v, key)
	if err != nil {
		return nil, err
	}
	v.remember(key, value)
	return value, nil
}

// ReadOnce decodes a piece of evidence as Read does, but does not keep it, because the decoded evidence of a long run
// does not fit into memory.
func ReadOnce[T any](v View, key string) (*T, error) {
	name, data, found := v.find(key)
	if !found {
		return nil, fmt.Errorf("there is no evidence %s", evidenceFile(key, plainSuffix))
	}
	if strings.HasSuffix(name, packedSuffix) {
		var err error
		if data, err = unpack(data); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	value := new(T)
	if err := DecodeStrictly(data, value); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return value, nil
}

func (v View) cached(key string) any {
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	return v.log.decoded[key]
}

func (v View) remember(key string, value any) {
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	v.log.decoded[key] = value
}

func evidenceFile(key, suffix string) string { return path.Join(evidenceFolder, key+suffix) }

// indent makes JSON readable. What cannot be indented stays as it is, and Read returns what is wrong with it.
func indent(raw []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return raw
	}
	return b.Bytes()
}

func pack(raw []byte) ([]byte, error) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(raw)
	err = errors.Join(err, w.Close())
	return packed.Bytes(), err
}

func unpack(data []byte) ([]byte, error) {
	packed := bytes.NewReader(data)
	r, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	r.Multistream(false)
	raw, err := io.ReadAll(io.LimitReader(r, sizeLimit+1))
	switch {
	case err != nil:
		return nil, err
	case len(raw) > sizeLimit:
		return nil, fmt.Errorf("it is larger than %d bytes", sizeLimit)
	case packed.Len() > 0:
		return nil, errors.New("there is something behind its end")
	}
	return raw, nil
}
