package findings

import (
	"fmt"
	"strings"
	"testing"
)

// followup is a change that upstream made after the feature was there.
type followup struct {
	Change    int      `json:"change"` // its number in kubernetes/kubernetes
	Since     string   `json:"since"`
	Does      string   `json:"does"`
	Scenarios []string `json:"scenarios"`
	Unshown   string   `json:"unshown"`
}

// followupsPage wants each change to be shown by scenarios that exist, or to say why none does.
func followupsPage(t *testing.T) string {
	t.Helper()
	all, set := table[followup](t, "followups_test.yaml")
	var b strings.Builder
	b.WriteString("# The follow-up work of KEP-5284\n\n[kubernetes/kubernetes#135111](https://github.com/kubernetes/kubernetes/issues/135111) lists the work that was left after the first version. Its text was not available when this page was made. What is mapped here are therefore the pull requests that name it, by their own descriptions; an item of the list that no pull request names is missing. The page is generated from [followups_test.yaml](../../verdicts/findings/followups_test.yaml).\n\n| change | since | what it does | covered by |\n|---|---|---|---|\n")
	for _, f := range all {
		shown := shownBy(t, set, fmt.Sprint(f.Change), f.Scenarios)
		if f.Unshown != "" {
			shown = append(shown, f.Unshown)
		}
		if f.Change == 0 || f.Since == "" || f.Does == "" || len(shown) == 0 {
			t.Errorf("%+v is not complete", f)
		}
		fmt.Fprintf(&b, "| [%d](https://github.com/kubernetes/kubernetes/pull/%d) | %s | %s | %s |\n", f.Change, f.Change, f.Since, f.Does, strings.Join(shown, "<br>"))
	}
	return b.String()
}
