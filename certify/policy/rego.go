package policy

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/authzconf/authzconf/scenarios"
)

//go:embed rules.rego
var regoRules string

// Rego is the policy as a module for Open Policy Agent 1.0 and later. Its input is the spec of a v1
// SubjectAccessReview; where data.authzconf.certification.allow is false there is no opinion.
func (p *Policy) Rego() ([]byte, error) {
	var out bytes.Buffer
	_, _ = fmt.Fprintf(&out, "# The policy of certification, seed %d.\n%s", p.Seed, regoRules)
	for _, table := range []struct {
		name   string
		grants map[string][]*scenarios.Grant
	}{{"by_user", p.byUser}, {"by_group", p.byGroup}} {
		raw, err := json.MarshalIndent(table.grants, "", "\t")
		if err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(&out, "\n%s := ", table.name)
		for _, r := range string(raw) { // Rego takes no byte-order mark, not even within a string
			if r < utf8.RuneSelf {
				out.WriteRune(r)
				continue
			}
			for _, unit := range utf16.AppendRune(nil, r) {
				_, _ = fmt.Fprintf(&out, `\u%04x`, unit)
			}
		}
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}
