package local

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestGivenAPIServers gives programs to cells by the flag, and checks that meaningless values are refused.
func TestGivenAPIServers(t *testing.T) {
	b := &Binaries{}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	b.RegisterAPIServers(flags)
	if err := flags.Parse([]string{"--api-server", "a=/x=y", "--api-server=/all"}); err != nil {
		t.Fatal(err)
	}
	for cell, want := range map[string]string{"a": "/x=y", "b": "/all"} {
		if got := b.GivenAPIServer(cell); got != want {
			t.Errorf("%s: %q, want %q", cell, got, want)
		}
	}
	if got, want := b.apiServers.String(), "/all,a=/x=y"; got != want {
		t.Errorf("the flag is shown as %q, want %q", got, want)
	}
	if err := b.CheckCells("a", "b"); err != nil {
		t.Error(err)
	}
	if err := b.CheckCells("b", "c"); err == nil || !strings.Contains(err.Error(), "there is no such cell; there are b, c") {
		t.Errorf("a cell that there is not: %v", err)
	}
	_, err := b.FindGivenAPIServer("a")
	if err == nil || !strings.Contains(err.Error(), "--api-server /x=y: expected the path of a kube-apiserver") {
		t.Errorf("a program that there is not: %v", err)
	}
	for _, bad := range []string{"a=", "a=/again", "", "/twice"} {
		if err := flags.Set("api-server", bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if got := (*Binaries)(nil).GivenAPIServer("a"); got != "" {
		t.Errorf("nobody gives %q", got)
	}
}
