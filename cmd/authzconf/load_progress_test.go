package main

import (
	"bytes"
	"testing"
)

// TestCreatedInALog expects a line every so often.
func TestCreatedInALog(t *testing.T) {
	var out bytes.Buffer
	p := &loadProgress{display: newDisplay(&out)}
	p.created(1, 154999)
	p.shown = p.shown.Add(-2 * plainEvery)
	p.created(12000, 154999)
	p.created(12500, 154999)
	p.end()
	if want := "12,000 of 154,999 objects\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestCreatedOnATerminal expects one line that is rewritten, not for each object.
func TestCreatedOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := &loadProgress{display: newDisplay(&out)}
	p.live = true
	p.shown = p.shown.Add(-2 * liveEvery)
	for done := range int64(1000) {
		p.created(done+1, 1000)
	}
	p.end()
	erase := "\r\x1b[K"
	if want := erase + "1 of 1,000 objects" + erase + "1,000 of 1,000 objects" + erase; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
