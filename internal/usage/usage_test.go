package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

func TestError(t *testing.T) {
	err := error(&Error{Problem: "cannot write /x", Err: fs.ErrPermission})
	if got, want := err.Error(), "cannot write /x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := (&Error{Problem: "cannot write /x", Hint: "name another folder"}).Error(), "cannot write /x; name another folder"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(err, fs.ErrPermission) {
		t.Error("the cause is lost")
	}
}

func TestIs(t *testing.T) {
	if !Is(fmt.Errorf("starting: %w", &Error{Problem: "no such version"})) {
		t.Error("a wrapped Error is not recognized")
	}
	if Is(fs.ErrPermission) || Is(nil) {
		t.Error("another error, or none, is taken for an Error")
	}
}
