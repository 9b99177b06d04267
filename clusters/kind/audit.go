package kind

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/utils/ptr"
)

// tailPoll is the pause between two looks at a file that has not grown.
const tailPoll = time.Millisecond

// tail hands what is appended to a file to a sink.
type tail struct {
	file *os.File
	sink io.Writer
	quit chan struct{}
	done chan struct{}
	err  atomic.Pointer[error]
}

// follow begins with an empty file, which it makes: so the file belongs to this user, whoever writes to it.
func follow(path string, sink io.Writer) (*tail, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	t := &tail{file: file, sink: sink, quit: make(chan struct{}), done: make(chan struct{})}
	go t.run()
	return t, nil
}

func (t *tail) run() {
	defer close(t.done)
	buffer := make([]byte, 64<<10)
	for {
		n, err := t.file.Read(buffer)
		if n > 0 {
			if _, err := t.sink.Write(buffer[:n]); err != nil {
				t.fail(fmt.Errorf("audit events were lost: the audit sink failed: %w", err))
				return
			}
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			t.fail(fmt.Errorf("audit events were lost: %w", err))
			return
		}
		select {
		case <-t.quit:
			return
		case <-time.After(tailPoll):
		}
	}
}

func (t *tail) fail(err error) { t.err.Store(&err) }

func (t *tail) failure() error { return ptr.Deref(t.err.Load(), nil) }

func (t *tail) stop() error {
	close(t.quit)
	<-t.done
	return errors.Join(t.failure(), t.file.Close())
}
