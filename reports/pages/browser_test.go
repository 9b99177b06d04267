package pages

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/authzconf/authzconf/reports"
)

// openPage opens report.html in a Chromium without a network, or skips the test where there is none.
func openPage(t *testing.T, r *reports.Report) context.Context {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium: apt-get install chromium")
	}
	file := filepath.Join(t.TempDir(), reports.HTMLFile)
	if err := os.WriteFile(file, renderPages(t, r)[reports.HTMLFile], 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND"))
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx, chromedp.Navigate((&url.URL{Scheme: "file", Path: file}).String())); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// TestFilter filters the list of all cases in a browser.
func TestFilter(t *testing.T) {
	ctx := openPage(t, largeReport(5, 60, func(cell, i int) bool { return cell == 1 && i%30 == 3 }))
	const input = `document.querySelector('.filter').dispatchEvent(new Event('input')); document.querySelector('.filter output').textContent`
	tests := []struct{ name, script, want string }{
		{"everything", ``, "60 cases"},
		{"a name", `document.querySelector('.filter input[type=search]').value = 'behaviour-01 HEADERS-2';`, "10 of 60 cases"},
		{"a level", `document.querySelector('.filter select').value = 'core';`, "3 of 60 cases"},
		{"failures", `document.querySelector('.filter input[type=search]').value = ''; document.querySelector('.filter select').value = '';
			document.querySelectorAll('.filter input[type=checkbox]').forEach(b => { b.checked = b.value === 'fail' });`, "2 of 60 cases"},
	}
	for _, test := range tests {
		got, err := chromedp.Run(ctx, chromedp.Evaluate[string](test.script+input))
		if err != nil {
			t.Fatal(err)
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// TestMarkOpensFailure follows the link of a mark to a failure that was closed.
func TestMarkOpensFailure(t *testing.T) {
	ctx := openPage(t, largeReport(5, 60, func(cell, i int) bool { return cell == 1 && i%30 == 3 }))
	opened, err := chromedp.Run(ctx, chromedp.Evaluate[string](`(async () => {
		document.querySelectorAll('.fails details').forEach(d => { d.open = false });
		document.querySelector('.matrix .fail a').click();
		await new Promise(r => setTimeout(r, 200));
		return document.querySelector('.fails details[open]')?.id ?? 'nothing';
	})()`, chromedp.EvalAwaitPromise))
	if want := "1.30-gate-off/kep-5284/behaviour-00/a-request-with-headers-3"; err != nil || opened != want {
		t.Errorf("%v, opened %q, want %q", err, opened, want)
	}
}
