package load

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/authzconf/authzconf/reports/load/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

// The page is one file without anything to fetch: style and plots are put into it.
var (
	//go:embed load.html.tmpl
	pageTemplate string
	//go:embed load.css
	pageStyle string

	pageTemplates = template.Must(template.New("load").Funcs(functions).Funcs(template.FuncMap{
		"style":     func() template.CSS { return template.CSS(pageStyle) },
		"colour":    func(i int) template.CSS { return template.CSS(statistics.Colour(i)) },
		"dashed":    statistics.Dashed,
		"bracket":   bracket,
		"percentOf": func(part float64) string { return fmt.Sprintf("%g %%", 100*part) },
		"time":      func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	}).Parse(pageTemplate))
)

// functions are those of the page and of Markdown.
var functions = map[string]any{
	"bound":    boundText,
	"reviews":  func(r ReviewRate) string { return strings.TrimSuffix(reviewsText(r), " reviews per request") },
	"predict":  predictedText,
	"first":    rateCell,
	"asked":    asked,
	"named":    func(name string, r ReviewRate) named { return named{name, r} },
	"again":    againText,
	"change":   changeText,
	"ms":       millisecondsText,
	"p":        pText,
	"duration": text,
	"cpu":      cpuText,
	"mib":      func(n int64) int64 { return n >> 20 },
	"kib":      func(n float64) string { return fmt.Sprintf("%.1f", n/1024) },
	"percent":  func(part float64) string { return fmt.Sprintf("%.1f", 100*part) },
	"effects":  func(c Comparison) []namedEffect { return []namedEffect{{"p50", c.P50}, {"p99", c.P99}, {"CPU", c.CPU}} },
}

type namedEffect struct {
	Name string
	Effect
}

// named is reviews per request with the name of its variant.
type named struct {
	Name string
	ReviewRate
}

type page struct {
	Run    *run.Run
	Result *Result
	// Plots are elements that were escaped when they were drawn.
	Plots map[string]template.HTML
}

// HTML is report.html.
func HTML(r *run.Run, result *Result) ([]byte, error) {
	groups := groupVariants(r)
	reviews, err := plotReviews(result.Variants)
	latencies, err2 := plotLatencies(groups)
	timeline, err3 := plotTimeline(groups)
	effects, err4 := plotEffects(result.Comparisons)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return nil, err
	}
	p := page{Run: r, Result: result, Plots: map[string]template.HTML{
		"reviews": template.HTML(reviews), "latencies": template.HTML(latencies), "timeline": template.HTML(timeline),
		"effects": template.HTML(effects),
	}}
	var b bytes.Buffer
	err = pageTemplates.Execute(&b, p)
	return b.Bytes(), err
}
