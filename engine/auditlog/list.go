package auditlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// spread tells whether a log begins with an EventList over several lines, as a person's tools write one.
func spread(data []byte) bool {
	data = bytes.TrimLeft(data, " \t\r\n")
	first, _, found := bytes.Cut(data, []byte{'\n'})
	first = bytes.TrimSpace(first)
	return found && len(first) > 0 && first[0] == '{' && first[len(first)-1] != '}' &&
		bytes.Contains(data[:min(len(data), 4<<10)], listHead)
}

// counted counts what is read through it.
type counted struct {
	io.Reader
	n *int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	*c.n += int64(n)
	return n, err
}

// errTooLong ends a list with an item that would fill the memory.
var errTooLong = errors.New("it is longer than 16 MiB")

// bounded lets a decoder read so much for one value, and no more.
type bounded struct {
	io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.Reader.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// value is the next one of a list.
func (b *bounded) value(d *json.Decoder) (raw json.RawMessage, err error) {
	b.left = longestLine
	return raw, d.Decode(&raw)
}

// items reads EventLists, one event at a time, to the end.
func (r *Reader) items(in io.Reader) error {
	source := &bounded{in, longestLine}
	d := json.NewDecoder(source)
	for {
		source.left = longestLine
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return r.broken(err, 0)
		}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return r.broken(err, 0)
			}
			if key != "items" {
				if _, err := source.value(d); err != nil {
					return r.broken(err, 0)
				}
				continue
			}
			if whole, err := r.array(source, d); err != nil || !whole {
				return err
			}
		}
		if _, err := d.Token(); err != nil { // the list's closing brace
			return r.broken(err, 0)
		}
		if r.Progress != nil {
			r.Progress(r.stats)
		}
	}
}

// array reads the items of one list. It tells whether the list was whole.
func (r *Reader) array(source *bounded, d *json.Decoder) (whole bool, err error) {
	open, err := d.Token()
	if err != nil {
		return false, r.broken(err, 0)
	}
	if open != json.Delim('[') {
		r.bad(0, "an EventList whose items are not a list")
		return false, nil
	}
	for n := int64(1); d.More(); n++ {
		raw, err := source.value(d)
		if err != nil {
			return false, r.broken(err, n)
		}
		if !bytes.Contains(raw, needle) {
			r.stats.Events++
			continue
		}
		if raw, err = typed(raw); err != nil {
			r.bad(n, err.Error())
			continue
		}
		if err := r.event(raw, n); err != nil {
			return false, err
		}
	}
	if _, err = d.Token(); err != nil {
		return false, r.broken(err, 0)
	}
	return true, nil
}

// typed gives an item the kind that items of a list may go without.
func typed(raw json.RawMessage) (json.RawMessage, error) {
	var item map[string]json.RawMessage
	if err := json.Unmarshal(raw, &item); err != nil {
		return nil, fmt.Errorf("not an event: %w", err)
	}
	if item["kind"] != nil {
		return raw, nil
	}
	item["kind"], item["apiVersion"] = json.RawMessage(`"`+eventKind+`"`), json.RawMessage(`"`+apiGroup+`v1"`)
	return json.Marshal(item)
}

// broken counts a list that cannot be read on: of what follows nothing is known.
func (r *Reader) broken(err error, item int64) error {
	var syntax *json.SyntaxError
	if errors.Is(err, errTooLong) {
		r.bad(item, "an EventList cannot be read on: "+err.Error())
		return nil
	}
	if !errors.As(err, &syntax) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	r.bad(item, "an EventList that is cut off or not JSON: "+err.Error())
	return nil
}
