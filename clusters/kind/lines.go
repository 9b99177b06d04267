package kind

import (
	"bytes"
	"io"
	"sync"
)

// lineMerger passes lines of several files to one receiver, which gets each line in one piece.
type lineMerger struct {
	mu sync.Mutex
	to io.Writer
}

// lines is one of the files of a lineMerger. It keeps an incomplete line until the rest has arrived.
type lines struct {
	mu     sync.Mutex
	merger *lineMerger
	rest   []byte
}

// redirect passes all further lines to another receiver that has no other files.
func (l *lines) redirect(to io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.merger = &lineMerger{to: to}
}

// Write passes on the lines that are complete.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	end := bytes.LastIndexByte(l.rest, '\n') + 1
	if end == 0 {
		return len(p), nil
	}
	l.merger.mu.Lock()
	defer l.merger.mu.Unlock()
	if _, err := l.merger.to.Write(l.rest[:end]); err != nil {
		return 0, err
	}
	l.rest = bytes.Clone(l.rest[end:])
	return len(p), nil
}
