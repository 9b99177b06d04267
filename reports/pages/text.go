package pages

import (
	"strings"
	"text/tabwriter"

	"github.com/authzconf/authzconf/reports"
)

// TableText returns a table as aligned text, for a terminal or a report entry of Ginkgo.
func TableText(t reports.Table) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	writeRow := func(cells []string) { _, _ = w.Write([]byte(strings.Join(cells, "\t") + "\n")) } // A Builder never fails.
	writeRow(t.Columns)
	for _, row := range t.Rows {
		writeRow(row.Cells)
	}
	_ = w.Flush()
	return text.String()
}
