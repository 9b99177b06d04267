package engines

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	opa "github.com/open-policy-agent/opa/cmd"
	fga "github.com/openfga/openfga/cmd"
	fgarun "github.com/openfga/openfga/cmd/run"
	"github.com/spf13/cobra"
)

// programs are what the page starts beside authzconf. The test binary is each of them under its name: the commands
// that their own main packages run.
var programs = map[string]func() int{
	"opa": func() int { return run(opa.RootCommand) },
	"openfga": func() int {
		root := fga.NewRootCommand()
		root.AddCommand(fgarun.NewRunCommand())
		return run(root)
	},
	"fga-webhook": fgaWebhook,
}

func run(c *cobra.Command) int {
	if err := c.Execute(); err != nil {
		return 1
	}
	return 0
}

func TestMain(m *testing.M) {
	if program := programs[filepath.Base(os.Args[0])]; program != nil {
		os.Exit(program())
	}
	os.Exit(m.Run())
}

const page = "../../docs/engines.md"

// command is a line of the page that is run, and what it says on its standard output.
type command struct{ line, output string }

// TestPage runs each chapter of the page that has commands, from nothing to a bundle that is verified, with engines
// that are servers, and compares what is printed with the page.
func TestPage(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	bin := install(t)
	for _, chapter := range strings.Split(string(raw), "\n## ")[1:] {
		title, _, _ := strings.Cut(chapter, "\n")
		commands := commandsOf(chapter)
		if len(commands) == 0 {
			continue
		}
		t.Run(title, func(t *testing.T) { shell(t, bin, commands) })
	}
}

// commandsOf reads the blocks of the language console.
func commandsOf(chapter string) (out []command) {
	for i, block := range strings.Split(chapter, "```") {
		text, ok := strings.CutPrefix(block, "console\n")
		if i%2 == 0 || !ok {
			continue
		}
		text = strings.ReplaceAll(text, "\\\n", "")
		for line := range strings.Lines(text) {
			if asked, ok := strings.CutPrefix(line, "$ "); ok {
				out = append(out, command{line: strings.TrimSpace(asked)})
			} else {
				out[len(out)-1].output += line
			}
		}
	}
	return out
}

// install makes a folder with all programs.
func install(t *testing.T) (bin string) {
	t.Helper()
	bin = t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name := range programs {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", bin, "./cmd/authzconf")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("authzconf: %v\n%s", err, out)
	}
	return bin
}

// shell runs commands one after the other, and ends those in the background with the test.
func shell(t *testing.T, bin string, commands []command) {
	var script strings.Builder
	script.WriteString("set -e\n")
	for i, c := range commands {
		_, _ = fmt.Fprintf(&script, "echo @@%d\n%s\n", i, c.line)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script.String())
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 20 * time.Second
	log, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, log
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	state, err := cmd.Process.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // the servers, which outlive the shell
	_ = cmd.Wait()
	said, _ := os.ReadFile(log.Name())
	if err != nil || !state.Success() {
		t.Fatalf("%v %v\n%s\n%s", state, err, out.String(), said)
	}
	t.Logf("%s", out.String())
	parts := strings.Split(out.String(), "@@")[1:]
	for i, c := range commands {
		_, got, _ := strings.Cut(parts[i], "\n")
		if !matches(masked(got), masked(c.output)) {
			t.Errorf("$ %s\nprinted\n%s\nthe page has\n%s", c.line, got, c.output)
		}
	}
}

var (
	digests = regexp.MustCompile(`\b[0-9a-f]{12}\b`)
	numbers = regexp.MustCompile(`\d+(\.\d+)?`)
	blanks  = regexp.MustCompile(`[ \n]+`)
)

// matches reports whether a command printed what the page has, where … stands for any lines, or none.
func matches(got, page string) bool {
	parts := strings.Split(page, "…")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(strings.TrimSpace(part))
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(got)
}

// masked leaves out what is another at each run, or with other questions: times, counts, digests, widths.
func masked(text string) string {
	text = digests.ReplaceAllString(text, "X")
	return strings.TrimSpace(blanks.ReplaceAllString(numbers.ReplaceAllString(text, "0"), " "))
}
