package scenarios_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// lineWidth is how many columns a line of a scenario may have, unless it contains a single longer value.
const lineWidth = 120

// TestLayout demands that the lines of scenarios fit on a screen. A step, and what is expected of it, that does not fit
// has one line for each field. A list has one line for each element. Anything else continues on the next line after a
// comma.
func TestLayout(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(raw, []byte("\nsteps:")) {
			return err
		}
		checkLayout(t, path, raw)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkLayout compares a file with its layout, or writes the layout. Both have to mean the same.
func checkLayout(t *testing.T, path string, raw []byte) {
	t.Helper()
	want := layOut(string(raw))
	if want == string(raw) {
		return
	}
	var before, after any
	if err := yaml.Unmarshal(raw, &before); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if err := yaml.Unmarshal([]byte(want), &after); err != nil {
		t.Fatalf("%s: its layout cannot be read: %v\n%s", path, err, want)
	}
	if !reflect.DeepEqual(before, after) {
		t.Fatalf("%s: its layout means something else:\n%s", path, want)
	}
	if !*update {
		t.Errorf("%s has lines of more than %d columns: go test ./scenarios -run TestLayout -update", path, lineWidth)
		return
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// layOut returns the text of a scenario with lines that fit.
func layOut(text string) string {
	var out []string
	block := blockScalar{}
	for _, entry := range entries(text) {
		switch {
		case block.goesOn(entry[0]):
			out = append(out, block.wrap(entry)...)
		case allFit(entry), hasComment(entry):
			out = append(out, entry...)
		default:
			out = append(out, expand(join(entry))...)
		}
		block.begin(entry[len(entry)-1])
	}
	return strings.Join(out, "\n") + "\n"
}

// entries returns the lines of a text, in which the lines of one value in brackets are together.
func entries(text string) (out [][]string) {
	depth := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if depth > 0 {
			out[len(out)-1] = append(out[len(out)-1], line)
		} else {
			out = append(out, []string{line})
		}
		depth = depthAfter(line, depth)
	}
	return out
}

// fits reports whether a line is short enough.
func fits(line string) bool { return len(line) <= lineWidth }

// allFit reports whether all lines are short enough.
func allFit(lines []string) bool {
	for _, line := range lines {
		if !fits(line) {
			return false
		}
	}
	return true
}

// hasComment reports whether one of the lines has a comment. Nothing is moved around comments.
func hasComment(lines []string) bool { return strings.Contains(strings.Join(lines, "\n"), " #") }

// join returns the lines of an entry as one line.
func join(entry []string) string {
	whole := entry[0]
	for _, line := range entry[1:] {
		line = strings.TrimSpace(line)
		isOpen := strings.HasSuffix(whole, "{") || strings.HasSuffix(whole, "[")
		isClose := strings.HasPrefix(line, "}") || strings.HasPrefix(line, "]")
		if !isOpen && !isClose {
			whole += " "
		}
		whole += line
	}
	return whole
}

var (
	// stepInBrackets matches an element of a list that is a step. expectInBrackets matches what is expected of a step.
	stepInBrackets   = regexp.MustCompile(`^( *)- \{((?:beside|name|request|kubectl): .*)\}$`)
	expectInBrackets = regexp.MustCompile(`^( *(?:- )?)(expect|expectClient): \{(.*)\}$`)
	// listInBrackets matches a list of mappings.
	listInBrackets = regexp.MustCompile(`^( *(?:- )?)([A-Za-z]+): \[(\{.*\})\]$`)
)

// expand returns the lines to which a line is expanded, or the line itself if it fits.
func expand(line string) (out []string) {
	if fits(line) {
		return []string{line}
	}
	var begins, before string
	var elements []string
	if m := stepInBrackets.FindStringSubmatch(line); m != nil {
		elements, begins, before = split(m[2]), m[1]+"- ", m[1]+"  "
	} else if m := expectInBrackets.FindStringSubmatch(line); m != nil {
		out = append(out, m[1]+m[2]+":")
		elements, before = split(m[3]), strings.Repeat(" ", len(m[1])+2)
		begins = before
	} else if m := listInBrackets.FindStringSubmatch(line); m != nil {
		out = append(out, m[1]+m[2]+":")
		elements, before = split(m[3]), strings.Repeat(" ", len(m[1])+2)+"- "
		begins = before
	} else {
		return wrap(line)
	}
	for i, element := range elements {
		if i > 0 {
			begins = before
		}
		out = append(out, expand(begins+element)...)
	}
	return out
}

// split returns the elements of a value in brackets.
func split(inner string) (elements []string) {
	last := 0
	for _, comma := range commas(inner, 0) {
		if comma.depth == 0 {
			elements = append(elements, inner[last:comma.at])
			last = comma.at + len(", ")
		}
	}
	return append(elements, inner[last:])
}

// wrap returns the lines of a line that is broken after commas.
func wrap(line string) (out []string) {
	indent := len(line) - len(strings.TrimLeft(line, " "))
	goesOn := strings.Repeat(" ", indent+2)
	if strings.HasPrefix(strings.TrimSpace(line), "- ") {
		goesOn += "  "
	}
	depth := 0
	for !fits(line) {
		at := breakAt(line, depth)
		if at < 0 {
			break
		}
		out = append(out, line[:at])
		depth = depthAfter(line[:at], depth)
		line = goesOn + strings.TrimLeft(line[at:], " ")
	}
	return append(out, line)
}

// breakAt returns where a line that is too long can be broken, or -1. It is after a comma in the second half of the
// line that is within as few brackets as possible, or else after the last comma.
func breakAt(line string, depth int) int {
	best := comma{at: -1}
	for _, c := range commas(line, depth) {
		isWithin := c.depth > 0 && c.at < lineWidth
		isBetter := best.at <= lineWidth/2 || c.depth <= best.depth
		if isWithin && isBetter {
			best = c
		}
	}
	if best.at < 0 {
		return -1
	}
	return best.at + 1
}

// comma is a comma between two elements: its position, and the number of brackets around it.
type comma struct{ at, depth int }

// commas returns the commas between elements of a line, up to a comment. depth is the number of brackets around the
// beginning of the line.
func commas(line string, depth int) []comma {
	list, _ := scan(line, depth)
	return list
}

// depthAfter returns the number of brackets around the end of a line. depth is the number of those around its
// beginning.
func depthAfter(line string, depth int) int {
	_, after := scan(line, depth)
	return after
}

// scan reads a line up to a comment. It returns the commas between elements, and the number of brackets around the end
// of the line. depth is the number of those around its beginning.
func scan(line string, depth int) (list []comma, after int) {
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == '"' && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"', c == '\'':
			if begins := i == 0 || strings.IndexByte(" [{,", line[i-1]) >= 0; begins {
				quote = c
			}
		case c == '#' && strings.HasSuffix(" "+line[:i], " "):
			return list, depth
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			depth--
		case c == ',' && i+1 < len(line) && line[i+1] == ' ':
			list = append(list, comma{i, depth})
		}
	}
	return list, depth
}

// blockScalar is a value in the lines below its key.
type blockScalar struct {
	isOpen    bool
	isLiteral bool
	indent    int // the indentation of the key
}

// begin records whether the value of the key in a line is in the lines below it.
func (b *blockScalar) begin(line string) {
	for _, mark := range []string{": >-", ": >", ": |", ": |-"} {
		if !b.isOpen && strings.HasSuffix(line, mark) {
			*b = blockScalar{true, strings.Contains(mark, "|"), len(line) - len(strings.TrimLeft(line, " -"))}
		}
	}
}

// goesOn reports whether a line belongs to the value.
func (b *blockScalar) goesOn(line string) bool {
	isEmpty := strings.TrimSpace(line) == ""
	isDeeper := len(line)-len(strings.TrimLeft(line, " ")) > b.indent
	b.isOpen = b.isOpen &&
		(isEmpty || isDeeper)
	return b.isOpen
}

// wrap returns the lines of folded text, newly wrapped. Literal text stays as it is.
func (b *blockScalar) wrap(lines []string) (out []string) {
	for _, line := range lines {
		indent := strings.Repeat(" ", len(line)-len(strings.TrimLeft(line, " ")))
		for !b.isLiteral && !fits(line) {
			at := strings.LastIndex(line[:lineWidth+1], " ")
			if at <= len(indent) {
				break
			}
			out = append(out, line[:at])
			line = indent + line[at+1:]
		}
		out = append(out, line)
	}
	return out
}
