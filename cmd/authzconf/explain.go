package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/matrix"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

func newExplain() *cobra.Command {
	var f explainFlags
	c := commandWith("explain [SCENARIO]", cobra.MaximumNArgs(1), func(c *cobra.Command, args []string) error {
		if len(args) == 1 {
			return f.scenario(c, args[0])
		}
		return f.question(c.Context(), c.OutOrStdout())
	})
	f.register(c)
	return c
}

func (f *explainFlags) question(ctx context.Context, out io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	config, notes, err := f.config()
	if err != nil {
		return err
	}
	var live *liveCluster
	if f.kubeconfig != "" {
		if live, err = newLiveCluster(ctx, f.kubeconfig, ""); err != nil {
			return err
		}
		config.Chain = []oracle.Authorizer{{Authorize: live.authorize}}
		if f.kubernetes == "" {
			if config.Kubernetes, err = live.version(); err != nil {
				return err
			}
			notes = append(notes, "The gate cannot be read from the cluster: this is the version's default, unless --gate says otherwise.")
		}
	}
	server, err := oracle.New(config)
	if err != nil {
		return err
	}
	for _, d := range server.Dangling() {
		notes = append(notes, "In the file, "+d+".")
	}
	imp := f.impersonate()
	p := server.Do(f.requestor(), imp, f.request())
	text := server.Explain(p, imp, f.request())
	if live != nil && live.err != nil {
		return invalid(live.err)
	}
	return writeExplained(out, config, server, append(notes, text))
}

func writeExplained(out io.Writer, config oracle.Config, server *oracle.Server, parts []string) error {
	state := map[bool]string{true: "on", false: "off"}[server.GateOn()]
	text := fmt.Sprintf("kube-apiserver %s, ConstrainedImpersonation %s\n", config.Kubernetes, state)
	for _, p := range parts {
		text += strings.TrimRight(p, "\n") + "\n"
	}
	_, err := io.WriteString(out, text)
	return err
}

// config is the server that the flags describe, offline.
func (f *explainFlags) config() (config oracle.Config, notes []string, err error) {
	config.Gate = scenarios.Gate(f.gate)
	if f.gate == "default" {
		config.Gate = ""
	}
	release, err := local.ParseRelease(cmp.Or(f.kubernetes, matrix.Newest()))
	if err != nil {
		return config, nil, err
	}
	config.Kubernetes = release.Minor
	switch {
	case f.grants != "":
		config.Objects, err = readGrants(f.grants)
	case f.kubeconfig == "":
		notes = []string{"Only what every cluster grants to everybody is granted: give --grants or --kubeconfig for more."}
	}
	return config, notes, err
}

func (f *explainFlags) scenario(c *cobra.Command, id string) error {
	if given := f.questionFlags(c); len(given) > 0 {
		return fmt.Errorf("a scenario already says who asks for what: only --scenarios, --kubernetes and --gate go with it, not --%s", given[0])
	}
	texts, err := f.selection.load()
	if err != nil {
		return err
	}
	s, ok := texts.Set.Get(strings.TrimSuffix(id, ".yaml"))
	if !ok {
		return fmt.Errorf("unknown scenario %q (authzconf list shows them all)", id)
	}
	config, _, err := f.config()
	if err != nil {
		return err
	}
	facts := scenarios.Facts{Kubernetes: config.Kubernetes, Binary: config.Kubernetes, Gate: config.Gate, Chain: s.Requires.Chain, Capabilities: scenarios.AllCapabilities()}
	if facts.Gate == "" {
		if facts.Gate = s.Requires.Gate; facts.Gate == scenarios.GateAny {
			facts.Gate = scenarios.GateOn
		}
	}
	if ok, _, why := s.Selected(facts); !ok {
		return fmt.Errorf("%s %s (--kubernetes and --gate choose another)", s.ID, why)
	}
	server, err := oracle.ServerFor(s, facts, fixtures.FS)
	if err != nil {
		return err
	}
	text, err := oracle.ExplainScenario(s, server, fixtures.FS)
	if err != nil {
		return err
	}
	config.Kubernetes = facts.Kubernetes
	return writeExplained(c.OutOrStdout(), config, server, []string{s.ID + ": " + s.Description, "", text})
}
