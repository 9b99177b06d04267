package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/docs"
)

// TestEveryCommandTeaches checks that every command has a help text with an example that begins with the command
// itself, and that its flags say what they are for.
func TestEveryCommandTeaches(t *testing.T) {
	root := newRoot()
	for _, c := range append(leaves(root), root) {
		if c.Short == "" || c.Long == "" {
			t.Errorf("%s: no description", c.CommandPath())
		}
		if !strings.Contains(c.Example, "  "+c.CommandPath()) {
			t.Errorf("%s: no example of it in %q", c.CommandPath(), c.Example)
		}
		for _, line := range strings.Split(c.Example, "\n") {
			if len(line) > 110 || !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: an example that is too long or not indented: %q", c.CommandPath(), line)
			}
		}
	}
}

// TestHelpHasNoStruckOutWords looks for words that docs/words.yaml strikes out in help texts, and in the names and
// usage of flags.
func TestHelpHasNoStruckOutWords(t *testing.T) {
	for _, c := range listCommands(newRoot()) {
		docs.CheckWords(t, c.CommandPath(), strings.Join([]string{c.Use, c.Short, c.Long, c.Example}, "\n"))
		c.Flags().VisitAll(func(f *pflag.Flag) {
			docs.CheckWords(t, c.CommandPath()+" --"+f.Name, strings.ReplaceAll(f.Name, "-", " ")+": "+f.Usage)
		})
	}
}

// listCommands returns a command and all commands below it.
func listCommands(c *cobra.Command) []*cobra.Command {
	found := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		found = append(found, listCommands(sub)...)
	}
	return found
}

// TestEveryCommandHasAPlace checks that the help text of the program has every command in a group.
func TestEveryCommandHasAPlace(t *testing.T) {
	root := newRoot()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	seen := map[string]bool{}
	for _, c := range root.Commands() {
		if c.GroupID == "" && !c.Hidden {
			t.Errorf("%s is in no group", c.Name())
		}
		if len(c.Short) > 85 {
			t.Errorf("%s: %q is too long for a line", c.Name(), c.Short)
		}
		if seen[c.Name()] {
			t.Errorf("%s is there twice", c.Name())
		}
		seen[c.Name()] = true
	}
	for _, g := range commandGroups() {
		if len(g.commands) == 0 {
			t.Errorf("group %s is empty", g.id)
		}
	}
}

// leaves returns all commands that do something.
func leaves(c *cobra.Command) []*cobra.Command {
	var found []*cobra.Command
	for _, sub := range c.Commands() {
		if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" {
			continue // for this program itself, or cobra's own
		}
		if sub.HasSubCommands() {
			found = append(found, leaves(sub)...)
		} else {
			found = append(found, sub)
		}
	}
	return found
}
