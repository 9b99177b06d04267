package reports_test

import (
	"context"
	"fmt"
	"html/template"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/site"
)

// browser starts a Chromium without a network, or skips the test where there is none.
func browser(t *testing.T) context.Context {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium: apt-get install chromium")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.Flag("proxy-server", "127.0.0.1:1"), chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND"))
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return ctx
}

// shown are the pages of a run with one of everything: its report, and a site of it and of one that does not hold.
func shown(t *testing.T) string {
	t.Helper()
	texts := reports.TestTexts(t)
	r, evidence := reports.MixedRun(t, texts)
	dir := filepath.Join(t.TempDir(), "run")
	if err := reports.Write(dir, r, evidence, texts); err != nil {
		t.Fatal(err)
	}
	s := site.Site{SuiteVersion: "v0.1.0"}
	good := s.Add(dir, reports.Folder.Name)
	if err := good.Copy(&reports.Folder, dir); err != nil {
		t.Fatal(err)
	}
	if err := good.Conformance(&reports.Verification{Report: r, Set: texts.Set, Evidence: evidence}); err != nil {
		t.Fatal(err)
	}
	texts = reports.ChangeTexts(t)
	r, evidence = reports.ChangeRun(t, texts)
	if err := s.Add("changed", reports.Folder.Name).Conformance(&reports.Verification{Report: r, Set: texts.Set, Evidence: evidence}); err != nil {
		t.Fatal(err)
	}
	bad := s.Add(dir, "load report")
	bad.Outcome, bad.Why = site.NotVerified, []string{"run.json: is not what it was <b>"}
	good.Plots = template.HTML(`<figure><svg width="1200" height="300"></svg></figure>`)
	out := filepath.Join(t.TempDir(), "site")
	if err := s.Write(out); err != nil {
		t.Fatal(err)
	}
	return out
}

// in opens a page and runs an asynchronous function in it.
func in[T any](ctx context.Context, t *testing.T, file, fragment, function string) T {
	t.Helper()
	at := (&url.URL{Scheme: "file", Path: file, Fragment: fragment}).String()
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank"), chromedp.Navigate(at)); err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	return run[T](ctx, t, function)
}

func run[T any](ctx context.Context, t *testing.T, function string) T {
	t.Helper()
	got, err := chromedp.Run(ctx, chromedp.Evaluate[T](`(async () => {
		const until = async f => { for (let n = 0; n < 500 && !f(); n++) await new Promise(r => setTimeout(r, 20)); return f(); };
		const seen = e => Boolean(e && e.checkVisibility());
		`+function+`})()`, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", function, err)
	}
	return got
}

// No page is wider than the window, and none fetches anything; each has its script running.
func TestPagesFit(t *testing.T) {
	ctx, dir := browser(t), shown(t)
	for _, width := range []int64{360, 800, 1400} {
		if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 900)); err != nil {
			t.Fatal(err)
		}
		for _, page := range []string{"index.html", "versions.html", "findings.html", "load.html", "reports/run/index.html"} {
			t.Run(fmt.Sprintf("%s at %d", page, width), func(t *testing.T) {
				file := filepath.Join(dir, page)
				wide := in[string](ctx, t, file, "", `
					document.querySelector('.filter button')?.click();
					if (!await until(() => !document.querySelector('[data-k]'))) return 'something stays packed';
					document.querySelectorAll('details').forEach(d => { d.open = true; });
					if (performance.getEntriesByType('resource').length) return 'something is fetched';
					if (!seen(document.querySelector('.filter'))) return 'the filter is hidden';
					const thin = [...document.querySelectorAll('th')].find(e => seen(e) && e.scope === 'row' && e.textContent.trim().length > 8 && e.getBoundingClientRect().width < 56);
					if (thin) return 'a cell with a letter a line: ' + thin.outerHTML.slice(0, 120);
					if (document.documentElement.scrollWidth <= innerWidth) return '';
					const scrolls = e => e && (getComputedStyle(e).overflowX !== 'visible' || scrolls(e.parentElement));
					const out = [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth && !scrolls(e.parentElement));
					return document.documentElement.scrollWidth + ' wide: ' + out.slice(0, 3).map(e => e.outerHTML.slice(0, 120)).join(' ');`)
				if wide != "" {
					t.Error(wide)
				}
			})
		}
	}
}

// From the index what failed, and who is to blame, is two clicks away, and so is what was seen.
func TestPageLeadsToFailures(t *testing.T) {
	ctx, dir := browser(t), shown(t)
	if got := in[string](ctx, t, filepath.Join(dir, "index.html"), "", `
		const li = document.querySelector('.fails li'), a = li.querySelector('a');
		if (!seen(li) || !li.textContent.includes('blame: ')) return 'the index names nobody who is to blame';
		const row = [...document.querySelectorAll('tr')].find(r => r.textContent.includes('not verified'));
		if (!seen(row) || row.textContent.includes('passed') || row.querySelector('a') || !row.textContent.includes('<b>')) return 'not verified: ' + row?.innerHTML;
		return '';`); got != "" {
		t.Error(got)
	}
	if _, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(".fails a"))); err != nil {
		t.Fatal(err)
	}
	panel := `const panel = () => document.getElementById(decodeURIComponent(location.hash.slice(1)));
		if (!await until(() => location.pathname.includes('/reports/run/') && panel()?.open && seen(panel().querySelector('.df, .reason')))) return 'nothing is open at ' + location.href;
		const hidden = () => { const at = panel().getBoundingClientRect(); return !panel().contains(document.elementFromPoint(at.left + 20, at.top + 10)); };
		if (!await until(() => !hidden())) return 'it is hidden at ' + location.href + ' ' + panel().getBoundingClientRect().top;
		return panel().textContent.includes('blame: ') ? '' : panel().textContent;`
	if got := run[string](ctx, t, panel); got != "" {
		t.Error(got)
	}
	if got := in[string](ctx, t, filepath.Join(dir, "reports/run/index.html"), "", `
		document.querySelector('a[href="#failures"]').click();
		document.querySelector('#failures a').click();`+panel); got != "" {
		t.Error(got)
	}
}

// A packed panel opens where a row, a mark or a link leads to it.
func TestPanelsUnpack(t *testing.T) {
	ctx, dir := browser(t), shown(t)
	const name = "kep-5284/user-info/list-pods-without-action-grant"
	page := filepath.Join(dir, "reports/run/index.html")
	for _, c := range []struct{ what, fragment, act string }{
		{"a row", "", `row.querySelector('summary').click(); await until(() => row.querySelector('.panel')); row.querySelector('.panel summary').click();`},
		{"a mark", "", `row.querySelector('summary .m:not(.na)').click();`},
		{"a link", "1.37-gate-on:" + name, ``},
	} {
		if got := in[string](ctx, t, page, c.fragment, `
			const row = document.getElementById('`+name+`');
			`+c.act+`
			if (!await until(() => [...document.querySelectorAll('.panel')].some(p => p.open && seen(p.querySelector('.io'))))) return 'no panel is open';
			return '';`); got != "" {
			t.Errorf("%s: %s", c.what, got)
		}
	}
}

// The filter is a key away.
func TestFilterByKeyboard(t *testing.T) {
	ctx, dir := browser(t), shown(t)
	for page, entries := range map[string]string{"index.html": "tr[data-f]", "findings.html": "article", "reports/run/index.html": ".row"} {
		count := fmt.Sprintf(`return [...document.querySelectorAll(%q)].filter(seen).length;`, entries)
		before := in[int](ctx, t, filepath.Join(dir, page), "", count)
		if err := chromedp.Do(ctx, chromedp.KeyEvent("/"), chromedp.KeyEvent("no-such-thing")); err != nil {
			t.Fatal(err)
		}
		if after := run[int](ctx, t, count); before == 0 || after != 0 {
			t.Errorf("%s: the filter leaves %d of %d", page, after, before)
		}
	}
}

// Pages are dark where the reader's system is.
func TestDarkAndLight(t *testing.T) {
	ctx, dir := browser(t), shown(t)
	for _, page := range []string{"index.html", "reports/run/index.html"} {
		seen := map[string]string{}
		for _, scheme := range []string{"dark", "light"} {
			features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
			if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
				t.Fatal(err)
			}
			seen[scheme] = in[string](ctx, t, filepath.Join(dir, page), "", `
				const of = c => c.match(/[0-9]+/g).slice(0, 3).reduce((sum, n) => sum + Number(n), 0);
				const s = getComputedStyle(document.body);
				return of(s.color) > of(s.backgroundColor) ? 'dark' : 'light';`)
		}
		if seen["dark"] != "dark" || seen["light"] != "light" {
			t.Errorf("%s: %v", page, seen)
		}
	}
}

// TestFirstPaint measures the page of a report in $AUTHZCONF_PAGE. Nothing depends on the time, which is the machine's.
func TestFirstPaint(t *testing.T) {
	file := os.Getenv("AUTHZCONF_PAGE")
	if file == "" {
		t.Skip("AUTHZCONF_PAGE names no report.html")
	}
	ctx := browser(t)
	for range 5 {
		t.Log(in[string](ctx, t, file, "", `
			await until(() => performance.getEntriesByName('first-contentful-paint').length);
			const ms = n => Math.round(n) + ' ms';
			const row = document.querySelector('.row[data-k]'), begin = performance.now();
			row.open = true;
			await until(() => row.querySelector('.panel'));
			return 'first paint ' + ms(performance.getEntriesByName('first-contentful-paint')[0].startTime) +
				', loaded ' + ms(performance.getEntriesByType('navigation')[0].loadEventEnd) + ', a row unpacked in ' + ms(performance.now() - begin);`))
	}
}
