package markers

import (
	"strings"
	"testing"
)

func TestParseMarker(t *testing.T) {
	for line, want := range map[string]marker{
		`+permission-verb:"specification"`:                         {permissionVerb, "specification"},
		`+permission-verb:specification`:                           {permissionVerb, "specification"},
		`  +permission-excluded `:                                  {permissionExcluded, ""},
		`+permission-parameter-source:"label-key"`:                 {parameterSource, "label-key"},
		`+permission-parameterized-by:"label-key"`:                 {parameterizedBy, "label-key"},
		`+permission-parameter-treatment:slash-delimited-prefix`:   {parameterTreatment, "slash-delimited-prefix"},
		`+permission-parameter-treatment:"slash-delimited-prefix"`: {parameterTreatment, "slash-delimited-prefix"},
		"+permission-parameterized-by:\"\\u006cabel-key\"":         {parameterizedBy, "label-key"},
	} {
		if got, err := parseMarker(line); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", line, got, err)
		}
	}
	for line, want := range map[string]string{
		`+permission-`:                           "unknown marker +permission-, expected one of ",
		`+permission-name:"a"`:                   "unknown marker +permission-name, expected one of ",
		`+permission-verb`:                       "+permission-verb: expected : and a name in lowerCamelCase",
		`+permission-verb:`:                      `+permission-verb is "", expected a name in lowerCamelCase`,
		`+permission-verb:"a" b`:                 `+permission-verb:"a" b: expected a value in double quotes and nothing after it`,
		`+permission-verb:a b`:                   `+permission-verb is "a b", expected a name in lowerCamelCase`,
		`+permission-verb: "a"`:                  `+permission-verb is " \"a\"", expected a name in lowerCamelCase`,
		`+permission-verb=a`:                     "+permission-verb=a: expected : before the value, not =",
		`+permission-excluded:true`:              "+permission-excluded:true: expected +permission-excluded without a value",
		`+permission-parameter-treatment:prefix`: `+permission-parameter-treatment is "prefix", expected slash-delimited-prefix, or no treatment at all`,
		`+permission-parameter-source:"My key"`:  `+permission-parameter-source is "My key", expected the name of a parameter, such as label-key`,
	} {
		if _, err := parseMarker(line); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", line, err, want)
		}
	}
}

// FuzzParseMarker checks that every marker that is read is written so that it is read again, and has a value of the form
// that its name requires.
func FuzzParseMarker(f *testing.F) {
	for _, line := range []string{
		`+permission-verb:"specification"`, `+permission-verb:a`, `+permission-excluded`, `+permission-verb="a"`, `+permission-verb:"a`,
		`+permission-excluded-values:["a"]`, `+permission-parameter-treatment:slash-delimited-prefix`, `+permission-parameterized-by:"label-key"`, "+permission-verb:`a`", `+permission-`, ``,
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		m, err := parseMarker(line)
		if err != nil {
			return
		}
		if checkName(commentPrefix, m.name) != nil || checkValue(commentPrefix, m.name, m.value) != nil {
			t.Errorf("%q: read as %+v", line, m)
		}
		if again, err := parseMarker(m.String()); err != nil || again != m {
			t.Errorf("%q: read as %+v, and %s as %+v, %v", line, m, m, again, err)
		}
	})
}
