package findings

import (
	"fmt"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/internal/seq"
)

// followup is a change that upstream made after it had released the feature.
type followup struct {
	Change    int      `json:"change"` // its number in kubernetes/kubernetes
	Since     string   `json:"since"`
	Does      string   `json:"does"`
	Scenarios []string `json:"scenarios"`
	Unshown   string   `json:"unshown"`
	// Item is set for an item of the list that is not a change.
	Item string `json:"item"`
}

// followupsPage returns the page of the changes. It checks that each is shown by scenarios that exist, or says why it
// is not.
func followupsPage(t *testing.T) string {
	t.Helper()
	listed, set := table[followup](t, "followups_test.yaml")
	all := seq.Filter(listed, func(f followup) bool { return f.Item == "" })
	var b strings.Builder
	b.WriteString("# The follow-up work of KEP-5284\n\n[kubernetes/kubernetes#135111](https://github.com/kubernetes/kubernetes/issues/135111) lists the work that was left after the first version: below are the pull requests that name it, and its items, in our words, with the scenarios that cover them. Generated from [followups_test.yaml](../../verdicts/findings/followups_test.yaml).\n\n| change | since | what it does | covered by |\n|---|---|---|---|\n")
	for _, f := range all {
		shown := shownBy(t, set, fmt.Sprint(f.Change), f.Scenarios)
		if f.Unshown != "" {
			shown = append(shown, f.Unshown)
		}
		if f.Change == 0 || f.Since == "" || f.Does == "" || len(shown) == 0 {
			t.Errorf("%+v is not complete", f)
		}
		fmt.Fprintf(
			&b,
			"| [%d](https://github.com/kubernetes/kubernetes/pull/%d) | %s | %s | %s |\n",
			f.Change,
			f.Change,
			f.Since,
			f.Does,
			strings.Join(shown, "<br>"),
		)
	}
	b.WriteString("\n| item of the list | answered by |\n|---|---|\n")
	for _, f := range seq.Filter(listed, func(f followup) bool { return f.Item != "" }) {
		shown := shownBy(t, set, f.Item, f.Scenarios)
		if f.Unshown != "" {
			shown = append(shown, f.Unshown)
		}
		if len(shown) == 0 {
			t.Errorf("%q: nothing answers it, and no reason is given", f.Item)
		}
		fmt.Fprintf(&b, "| %s | %s |\n", f.Item, strings.Join(shown, "<br>"))
	}
	return b.String()
}
