package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/loadgen/profile"
)

// commandText is what help.yaml says about a command: its help text, and which of its flags have an effect only
// together with others, or never with them. A condition is a flag, a flag with a value, or the name of an argument; "|"
// separates alternatives.
type commandText struct {
	Short, Long, Example string
	OnlyWith, NotWith    map[string][]string
}

//go:embed help.yaml
var helpTexts []byte

// generatedLists are the lists that help texts name in braces, such as {{variants}}. They become a line of the text for
// each entry of a table.
var generatedLists = map[string]func() []string{
	"variants": profile.DescribeVariants,
}

var namedList = regexp.MustCompile(`(?m)^( *)\{\{(\w+)\}\}$`)

// insertLists returns a help text with the lists that it names. Their lines are indented as the name is.
func insertLists(text string) string {
	return namedList.ReplaceAllStringFunc(text, func(line string) string {
		indent, name := namedList.FindStringSubmatch(line)[1], namedList.FindStringSubmatch(line)[2]
		return indent + strings.Join(generatedLists[name](), "\n"+indent)
	})
}

// addHelpTexts gives every command its help text, and makes each refuse flags that would have no effect.
func addHelpTexts(root *cobra.Command) {
	texts := fixtures.Table[map[string]commandText]("help.yaml", helpTexts)
	for path, text := range texts {
		c, _, err := root.Find(strings.Fields(path)[1:])
		if err != nil || c.CommandPath() != path {
			panic(fmt.Sprintf("help.yaml: there is no command %q", path))
		}
		c.Short, c.Long = text.Short, insertLists(text.Long)
		if c.Example = text.Example; c.Example != "" {
			c.Example = "  " + strings.ReplaceAll(c.Example, "\n", "\n  ")
		}
		c.PreRunE = text.effective
		text.groupFlags(c)
	}
	root.SetFlagErrorFunc(flagError)
	for _, c := range root.Commands() { // cobra's own do not mention what they do not know
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				if command, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return unknownCommand(command, rest[0])
				}
				return nil
			}
		case "completion":
			c.Args, c.RunE = checkArguments, func(c *cobra.Command, _ []string) error { return c.Help() }
		}
	}
}

// groupFlags declares to cobra which flags exclude each other, so that the shell's completion does not offer one when
// the other is given. The error messages are those of effective, which runs first.
func (t *commandText) groupFlags(c *cobra.Command) {
	for with, flags := range t.NotWith {
		if c.Flags().Lookup(with) == nil {
			continue // cobra has no groups for an argument, or for a flag with a value
		}
		for _, flag := range flags {
			c.MarkFlagsMutuallyExclusive(with, flag)
		}
	}
}

// effective refuses an empty value, two values where one counts, and a flag that has no effect with the others.
func (t *commandText) effective(c *cobra.Command, args []string) error {
	if slices.Contains(args, "") {
		return usageError(c, "an argument is empty", "is a variable of the shell unset? write "+c.UseLine())
	}
	if err := givenOnce(c); err != nil {
		return err
	}
	for _, with := range slices.Sorted(maps.Keys(t.OnlyWith)) {
		if flag := findGiven(c, t.OnlyWith[with], with); flag != "" && !matchesCondition(c, args, with) {
			return usageError(c, "--"+flag+" has no effect without "+describeConditions(with), "")
		}
	}
	for _, with := range slices.Sorted(maps.Keys(t.NotWith)) {
		if flag := findGiven(c, t.NotWith[with], with); flag != "" && matchesCondition(c, args, with) {
			return usageError(c, "--"+flag+" has no effect with "+describeConditions(with), "leave out one of them; "+helpOf(c))
		}
	}
	return nil
}

// givenOnce parses the command line again as it was typed, because a flag keeps only its last value.
func givenOnce(c *cobra.Command) error {
	_, typed, err := c.Root().Find(commandLine[1:])
	if err != nil {
		return err
	}
	before := map[string]string{}
	return c.Flags().ParseAll(typed, func(flag *pflag.Flag, value string) error {
		was, twice := before[flag.Name]
		before[flag.Name] = value
		many := slices.Contains([]string{"strings", "stringArray", "ints", "stringToString"}, valueType(flag))
		empty := func(v string) bool { return strings.TrimSpace(v) == "" }
		switch {
		case empty(value):
			return usageError(c, "--"+flag.Name+" is empty", "is a variable of the shell unset? Leave the flag out for its default")
		case valueType(flag) == "strings" && slices.ContainsFunc(strings.Split(value, ","), empty):
			return usageError(c, fmt.Sprintf("--%s %q has an empty element", flag.Name, value), "")
		case twice && !many && was != value:
			return usageError(c, fmt.Sprintf("--%s is given twice, as %q and as %q", flag.Name, was, value), "leave out one of them")
		}
		return nil
	})
}

// findGiven returns the first flag on the command line that is in flags ("*" means all) and is not the one that a
// condition is about, or "" if there is none.
func findGiven(c *cobra.Command, flags []string, with string) (first string) {
	all := slices.Equal(flags, []string{"*"})
	c.Flags().Visit(func(f *pflag.Flag) {
		isMeant := all || slices.Contains(flags, f.Name)
		if first == "" && f.Name != with && isMeant {
			first = f.Name
		}
	})
	return first
}

// matchesCondition reports whether a command line meets one of the conditions, which | separates: FLAG, FLAG=VALUE, or
// the name of an argument.
func matchesCondition(c *cobra.Command, args []string, conditions string) bool {
	return slices.ContainsFunc(strings.Split(conditions, "|"), func(condition string) bool {
		name, value, hasValue := strings.Cut(condition, "=")
		flag := c.Flags().Lookup(name)
		switch {
		case flag == nil:
			return len(args) > 0
		case hasValue:
			return slices.Contains(strings.Split(strings.Trim(flag.Value.String(), "[]"), ","), value)
		}
		return flag.Changed && flag.Value.String() != "false"
	})
}

// describeConditions returns conditions as a user writes them: --FLAG VALUE, or the name of an argument.
func describeConditions(conditions string) string {
	var out []string
	for _, condition := range strings.Split(conditions, "|") {
		if isFlag := condition != strings.ToUpper(condition); isFlag {
			condition = "--" + strings.Replace(condition, "=", " ", 1)
		}
		out = append(out, condition)
	}
	return strings.Join(out, " or ")
}

// addHint adds to an error that the user can fix where to look, unless the error itself says what was expected, or
// where.
func addHint(c *cobra.Command, err error) error {
	if err == nil || explainsItself(err) {
		return err
	}
	return &usage.Error{Problem: err.Error(), Hint: helpOf(c), Err: err}
}

// explainsItself reports whether an error needs no hint because it has one, has an exit code of its own, or says what
// was expected.
func explainsItself(err error) bool {
	if _, hasCode := errors.AsType[*exitError](err); hasCode {
		return true
	}
	if e, isUsage := errors.AsType[*usage.Error](err); isUsage && e.Hint != "" {
		return true
	}
	return selfContained.MatchString(err.Error())
}

// selfContained matches an error of several lines, one that says what was expected, and one at a line of a file.
var selfContained = regexp.MustCompile(`\n.|[(:,] ?expected |; |:[0-9]+:`)

func usageError(c *cobra.Command, problem, hint string) error {
	return &usage.Error{Problem: problem, Hint: cmp.Or(hint, helpOf(c))}
}

// checkNewFile returns why a file with secrets cannot be created where a flag says. An existing file is refused,
// because it belongs to somebody and may be readable by all.
func checkNewFile(c *cobra.Command, flag, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return usageError(
			c,
			fmt.Sprintf("--%s %s is there already", flag, path),
			"name a new file, or remove that one if an earlier run has left it",
		)
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return usageError(c, fmt.Sprintf("--%s %s: there is no folder %s", flag, path, filepath.Dir(path)), "make it first")
	}
	return nil
}

func helpOf(c *cobra.Command) string { return c.CommandPath() + " --help has examples" }

// flagError returns an error that says what was expected of a flag that cannot be read.
func flagError(c *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(c, cmp.Or(strings.TrimPrefix(unknown.GetSpecifiedShortnames(), "-"), unknown.GetSpecifiedName()))
	}
	if none, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return usageError(c, "--"+none.GetFlag().Name+" needs a value", "")
	}
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return usageError(c, err.Error(), "")
	}
	flag := wrong.GetFlag()
	expected := map[string]string{
		"int": "a whole number", "ints": "whole numbers, separated by commas", "uint": "a whole number that is not negative",
		"duration": "a duration, such as 500ms, 30s or 5m", "bool": "true or false", "stringToString": "NAME=VALUE",
	}[valueType(flag)]
	return usageError(c, fmt.Sprintf("--%s %q: expected %s", flag.Name, wrong.GetValue(), expected), "")
}

// valueType returns the type that a help text shows. It is int for int64 too.
func valueType(flag *pflag.Flag) string {
	name, _ := pflag.UnquoteUsage(flag)
	return cmp.Or(name, flag.Value.Type())
}

func unknownFlag(c *cobra.Command, name string) error {
	var flags []string
	c.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
	dashes := "--"
	if len(name) == 1 || slices.Contains(flags, name) {
		dashes = "-"
	}
	hint := helpOf(c)
	if suggestions := nearest(name, flags); len(suggestions) > 0 {
		hint = "did you mean --" + strings.Join(suggestions, " or --") + "? " + hint
	} else if !c.HasParent() {
		hint = "flags stand behind the command; " + hint
	}
	return usageError(c, fmt.Sprintf("%s has no flag %s%s", c.CommandPath(), dashes, name), hint)
}

// checkArguments compares args with the arguments that the usage line of a command names, such as FOLDER, [FOLDER] and
// FOLDER...
func checkArguments(c *cobra.Command, args []string) error {
	var least []string
	most := 0
	for _, name := range strings.Fields(c.Use)[1:] {
		if strings.HasPrefix(name, "-") {
			break
		}
		if most++; !strings.HasPrefix(name, "[") {
			least = append(least, name)
		}
		if strings.HasSuffix(strings.TrimSuffix(name, "]"), "...") {
			most = len(args) + 1
		}
	}
	switch {
	case len(args) < len(least):
		return usageError(c, strings.TrimSuffix(least[len(args)], "...")+" is missing", "write "+c.UseLine()+"; "+helpOf(c))
	case len(args) <= most:
		return nil
	case c.HasSubCommands():
		return unknownCommand(c, args[0])
	case most == 0:
		return usageError(c, fmt.Sprintf("%s takes no arguments, and %q was given", c.CommandPath(), args[0]), "")
	}
	return usageError(c, fmt.Sprintf("%q is more than %s takes", args[most], c.CommandPath()), "write "+c.UseLine()+"; "+helpOf(c))
}

func unknownCommand(c *cobra.Command, name string) error {
	var names []string
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	hint := c.CommandPath() + " --help lists the commands"
	if suggestions := nearest(name, names); len(suggestions) > 0 {
		hint = "did you mean " + c.CommandPath() + " " + strings.Join(suggestions, " or ") + "? " + hint
	}
	return usageError(c, fmt.Sprintf("unknown command %q for %q", name, c.CommandPath()), hint)
}

// nearest returns up to three of the names that may be meant, as cobra suggests commands.
func nearest(name string, names []string) []string {
	root := &cobra.Command{SuggestionsMinimumDistance: 1 + len(name)/4}
	for _, other := range names {
		c := &cobra.Command{Use: other, Run: func(*cobra.Command, []string) {}}
		isPart := strings.Contains(name, other) || strings.Contains(other, name)
		if len(name) > 1 && isPart {
			c.SuggestFor = []string{name}
		}
		root.AddCommand(c)
	}
	suggestions := slices.Compact(root.SuggestionsFor(name))
	return suggestions[:min(3, len(suggestions))]
}

// commandWith returns a command with the arguments that use names.
func commandWith(use string, run func(c *cobra.Command, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Args: checkArguments, RunE: run, DisableFlagsInUseLine: true}
}

func plainCommand(use string, run func(c *cobra.Command) error) *cobra.Command {
	return commandWith(use, func(c *cobra.Command, _ []string) error { return run(c) })
}
