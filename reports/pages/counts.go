package pages

import (
	"strconv"

	"github.com/authzconf/authzconf/reports"
)

// rowsPerLevel is the largest number of groups for which each level of a group has a row. With more groups, each group
// has one row.
const rowsPerLevel = 10

// listCounts returns the rows of a table: a group, a level, and how many cases have each mark.
func listCounts(r *reports.Report) (rows [][]string) {
	for i := range r.Groups {
		g := &r.Groups[i]
		if len(r.Groups) > rowsPerLevel {
			rows = append(rows, countRow(g.Name, "all", g.Counts()))
			continue
		}
		for _, level := range reports.Levels() {
			if n, ok := g.Summary[level]; ok {
				rows = append(rows, countRow(g.Name, string(level), n))
			}
		}
	}
	return rows
}

func countRow(group, level string, counts reports.Counts) []string {
	row := []string{group, level}
	for _, m := range reports.Marks() {
		row = append(row, strconv.Itoa(*counts.Of(m)))
	}
	return row
}
