package filing

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestInput reads what careless users name. None of it may block, or take all memory.
func TestInput(t *testing.T) {
	dir := t.TempDir()
	pipe, big, small := filepath.Join(dir, "pipe"), filepath.Join(dir, "big"), filepath.Join(dir, "small")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, size := range map[string]int64{big: inputLimit + 1, small: 3} {
		f, err := os.Create(path)
		if err == nil {
			err = f.Truncate(size)
		}
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		pipe:        "",
		small:       "",
		big:         "larger than 128 MiB",
		"/dev/zero": "larger than 128 MiB",
		dir:         "is a directory",
		dir + "/no": "no such file",
	} {
		_, err := Input(path)
		if want == "" && err != nil ||
			want != "" &&
				(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	for _, path := range []string{pipe, small} {
		if _, err := OpenFolder(path); err == nil || !strings.Contains(err.Error(), "not a directory") {
			t.Errorf("%s as a folder: %v", path, err)
		}
	}
}

// TestInputFromWriter reads from a pipe while somebody writes to it, as the shell's <(command) does.
func TestInputFromWriter(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	go func() {
		_, _ = w.WriteString("written")
		_ = w.Close()
	}()
	data, err := Input(fmt.Sprintf("/dev/fd/%d", r.Fd()))
	if err != nil || string(data) != "written" {
		t.Errorf("%q, %v", data, err)
	}
}
