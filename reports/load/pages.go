package load

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	texttemplate "text/template"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/statistics"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

// The page is one file without anything to fetch: style and plots are put into it.
var (
	//go:embed load.html.tmpl
	pageTemplate string
	//go:embed figures.tmpl
	figureTemplates string // of both
	//go:embed load.css
	pageStyle string

	pageTemplates = template.Must(template.New("load").Funcs(functions).Funcs(template.FuncMap{
		"style":   func() template.CSS { return template.CSS(pageStyle) },
		"colour":  func(i int) template.CSS { return template.CSS(statistics.Colour(i)) },
		"dashed":  statistics.Dashed,
		"bracket": bracket, "percentOf": percentOf,
	}).Parse(figureTemplates + pageTemplate))
)

var functions = map[string]any{
	"worded":   worded,
	"asked":    asked,
	"queues":   queuesText,
	"named":    func(name string, r ReviewRate) named { return named{name, r} },
	"time":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"duration": text,
	"mib":      func(n int64) int64 { return n >> 20 },
	"kib":      func(n float64) string { return fmt.Sprintf("%.1f", n/1024) },
	"percent":  func(part float64) string { return fmt.Sprintf("%.1f", 100*part) },
	"due":      func(v *Variant) int64 { return v.Sent + v.Dropped },
	"ownNode":  func(v Variant) bool { return strings.HasPrefix(v.Variant, "associated-node") },
	"limit":    func(name string) string { return strings.Replace(name, sloName, "SLO", 1) },
	"effects":  func(c Comparison) []namedEffect { return []namedEffect{{"p50", c.P50}, {"p99", c.P99}, {"CPU", c.CPU}} },
}

type namedEffect struct {
	Name string
	Effect
}

type named struct {
	Name string
	ReviewRate
}

type page struct {
	Run    *run.Run
	Result *Result
	Plots  map[string]template.HTML // elements that were escaped when they were drawn
}

// HTML is report.html.
func HTML(r *run.Run, result *Result) ([]byte, error) { return part("load", r, result) }

// Plots are the plots of report.html alone, with their legend.
func Plots(r *run.Run, result *Result) (template.HTML, error) {
	plots, err := part("plots", r, result)
	return template.HTML(plots), err
}

func part(name string, r *run.Run, result *Result) ([]byte, error) {
	groups := groupVariants(r)
	reviews, err := plotReviews(result.Variants)
	latencies, err2 := plotLatencies(groups)
	timeline, err3 := plotTimeline(groups, "")
	effects, err4 := plotEffects(result.Comparisons)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return nil, err
	}
	p := page{Run: r, Result: result, Plots: map[string]template.HTML{
		"reviews": template.HTML(reviews), "latencies": template.HTML(latencies), "timeline": template.HTML(timeline),
		"effects": template.HTML(effects),
	}}
	var b bytes.Buffer
	err = pageTemplates.ExecuteTemplate(&b, name, p)
	return b.Bytes(), err
}

// md escapes what Markdown or HTML would take for markup: names come from files.
var md = strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", ">", "&gt;", "&", "&amp;", "*", "\\*", "_", "\\_", "`", "\\`",
	"[", "\\[", "]", "\\]", "#", "\\#", "~", "\\~", "\n", " ", "\r", " ").Replace

var (
	//go:embed load.md.tmpl
	markdownSource string
	textTemplates  = texttemplate.Must(texttemplate.New("markdown").Funcs(functions).Funcs(texttemplate.FuncMap{
		"md": md, "brief": brief, "counted": reports.Plural, "join": func(words []string) string { return strings.ReplaceAll(strings.Join(words, " "), "`", "") },
	}).Parse(figureTemplates + markdownSource))
)

// brief is the first line of a reason, of a log for one, and what a reader can take in of it.
func brief(reason string) string {
	first, rest, _ := strings.Cut(reason, "\n")
	if most := 300; len(first) > most {
		first, rest = strings.ToValidUTF8(first[:most], ""), " "
	}
	if rest != "" {
		first += " … (all of it is in run.json)"
	}
	return first
}

func markdown(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	err := textTemplates.ExecuteTemplate(&b, name, data)
	return b.Bytes(), err
}

// Markdown is summary.md: what fits into the comment of a CI system.
func Markdown(r *run.Run, result *Result) ([]byte, error) {
	return markdown("summary", page{Run: r, Result: result})
}

func (r ReviewRate) interval() *statistics.Interval {
	if r.Bounded {
		return &r.PerRequest
	}
	return nil
}

// plotEffects shows the changes of all comparisons in percent, p50 before p99, beside their margins.
func plotEffects(comparisons []Comparison) (string, error) {
	percents := func(part float64) float64 { return 100 * part }
	var rows []statistics.Row
	for _, c := range comparisons {
		for _, e := range []namedEffect{{"p50", c.P50}, {"p99", c.P99}} {
			if !e.Measured {
				continue
			}
			row := statistics.Row{Name: c.Name + ", " + e.Name, Interval: e.Ninety.Map(percents), Values: seq.Map(e.Starts, percents)}
			if e.Margin > 0 {
				// By logarithms: to be slower by a factor is as much as to be faster by it.
				row.Band = &statistics.Interval{Low: 100 * (1/(1+e.Margin) - 1), High: 100 * e.Margin}
			}
			rows = append(rows, row)
		}
	}
	return statistics.Forest("how much longer B takes than A", "how much longer B takes than A, in percent", rows)
}

func plotReviews(variants []Variant) (string, error) {
	var rows []statistics.Row
	for _, v := range variants {
		row := statistics.Row{Name: v.Name, Interval: v.Reviews.PerRequest}
		if p := v.Reviews.Predicted; p != nil {
			row.Band = &statistics.Interval{Low: p.Low - bandRoom, High: p.High + bandRoom}
		}
		rows = append(rows, row)
	}
	return statistics.Forest("access reviews per request by variant", "access reviews per request", rows)
}

// bandRoom makes a prediction of one figure visible.
const bandRoom = 0.02

var shownQuantiles = []float64{0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999, 0.9999}

// nines stretches the upper end of a quantile, which is what load is about: 0.9 is 1, 0.99 is 2.
func nines(q float64) float64 { return -math.Log10(1 - q) }

// plotLatencies shows the latency curves by variant, with the bounds of quantiles.
func plotLatencies(groups []variantBlocks) (string, error) {
	chart := statistics.Chart{
		Label: "latency by percentile and variant", Height: 340,
		X: statistics.Axis{Label: "percentile", Room: true}, Y: statistics.Axis{Label: "latency in ms", Log: true},
	}
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999, 0.9999} {
		chart.X.Ticks = append(chart.X.Ticks, statistics.Tick{Value: nines(q), Label: "p" + strconv.FormatFloat(100*q, 'g', 6, 64)})
	}
	for _, g := range groups {
		h := merged(g.blocks, latencyOf)
		curve := statistics.Curve{Name: g.name}
		for _, q := range shownQuantiles {
			bound := quantileBound(&h, q)
			// A quantile needs some durations beyond it, and a logarithm a value above 0.
			if bound.Milliseconds <= 0 || float64(h.Count())*(1-q) < 1 {
				continue
			}
			at := statistics.Point{X: nines(q), Y: bound.Milliseconds}
			if bound.Bounded && bound.Low > 0 && slices.Contains([]float64{0.5, 0.9, 0.99, 0.999}, q) {
				at.Interval = &statistics.Interval{Low: bound.Low, High: bound.High}
			}
			curve.Points = append(curve.Points, at)
		}
		chart.Curves = append(chart.Curves, curve)
	}
	return chart.SVG()
}

func latencyOf(b *run.Block) *histogram.Histogram { return &b.Latency }

// plotTimeline shows the reviews in each second of a block, as the mean of the variant's blocks.
func plotTimeline(groups []variantBlocks, of string) (string, error) {
	chart := statistics.Chart{
		Label: "access reviews over time by variant" + of, Height: 300, Alone: of != "",
		X: statistics.Axis{Label: "seconds since the block began"}, Y: statistics.Axis{Label: "access reviews per second", Zero: true, Room: true},
	}
	for _, g := range groups {
		curve := statistics.Curve{Name: g.name}
		for second := 0; ; second++ {
			var sum, blocks float64
			for _, b := range g.blocks {
				if second < len(b.Timeline) {
					sum += float64(b.Timeline[second].Reviews)
					blocks++
				}
			}
			if blocks == 0 {
				break
			}
			curve.Points = append(curve.Points, statistics.Point{X: float64(second), Y: sum / blocks})
		}
		if len(curve.Points) < 2 {
			curve.Points = nil // not a line
		}
		chart.Curves = append(chart.Curves, curve)
	}
	return chart.SVG()
}

func text(d run.Duration) string { return time.Duration(d).String() }

func percent(part float64) string {
	if math.Abs(part) < 0.0005 {
		return "0.0 %"
	}
	return fmt.Sprintf("%+.1f %%", 100*part)
}

func percentOf(part float64) string { return fmt.Sprintf("%g %%", 100*part) }

func bracket(i statistics.Interval) string {
	return fmt.Sprintf("[%s, %s]", strings.TrimSuffix(percent(i.Low), " %"), percent(i.High))
}

func pValue(p float64) string {
	if p < 0.0005 {
		return "< 0.001"
	}
	return fmt.Sprintf("%.3f", p)
}

var (
	//go:embed sentences.tmpl
	sentenceTemplates string
	sentences         = texttemplate.Must(texttemplate.New("sentences").Funcs(texttemplate.FuncMap{
		"percent": percent, "bracket": bracket, "pValue": pValue, "percentOf": percentOf,
	}).Parse(sentenceTemplates))
)

// worded words a figure by a template of sentences.tmpl.
func worded(sentence string, figure any) string {
	var b strings.Builder
	if err := sentences.ExecuteTemplate(&b, sentence, figure); err != nil {
		panic(err)
	}
	return b.String()
}

// String is the effect on one line: "+3.1 % [+1.2, +5.0 %], +0.12 [+0.05, +0.19] ms, p 0.003 (adjusted 0.02); equivalent: …".
func (e Effect) String() string { return worded("effect and margin", e) }

// asked says who took part and, of the blocks, how many asked and how many times each.
func asked(r *run.Run) string {
	least, most, seldom, often := math.MaxInt, 0, math.MaxInt, 0
	for _, b := range r.Blocks {
		if p := b.Predicted; p != nil && p.Asked > 0 {
			least, most, seldom, often = min(least, p.Asked), max(most, p.Asked), min(seldom, p.Seldom), max(often, p.Often)
		}
	}
	text := r.Population.String()
	if most > 0 {
		text += fmt.Sprintf(". In a block of %s %s of %d asked, %s each", time.Duration(r.Blocks[0].Length), fromTo(least, most), r.Agents, timesText(seldom, often))
	}
	return text
}

func timesText(low, high int) string {
	if high == 1 {
		return "once"
	}
	return fromTo(low, high) + " times"
}

func fromTo(low, high int) string {
	if low == high {
		return strconv.Itoa(low)
	}
	return fmt.Sprintf("%d to %d", low, high)
}

// Summarize writes one line for each variant on each server: what was measured, and not what follows from it.
func Summarize(w io.Writer, r *run.Run, result *Result) error {
	text, err := markdown("console", page{Run: r, Result: result})
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = table.Write(text)
	return cmp.Or(err, table.Flush())
}
