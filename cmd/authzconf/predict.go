package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/loadgen/predict"
	"github.com/authzconf/authzconf/reports/filing"
)

// predictFlags are those of load predict.
type predictFlags struct {
	file, output string
	auditLogs    []string
	plan         predict.Plan
	workload     predict.Workload
}

func newLoadPredict() *cobra.Command {
	f := predictFlags{plan: predict.Defaults(), workload: predict.DefaultWorkload()}
	f.workload.Mode, f.workload.Name = "", "agents"
	c := plainCommand("predict", f.run)
	f.register(c.Flags())
	return c
}

// flagOfPath returns the flag that sets the value at a path of a plan.
var flagOfPath = map[string]string{
	"$.apiServers": "api-servers", "$.gate": "gate", "$.rbac": "rbac", "$.memory": "impersonation-ttl", "$.within": "within",
	"$.authorizer.chain": "authorizer", "$.authorizer.answers": "webhook-answers", "$.authorizer.cache": "webhook-cache",
	"$.authorizer.allowedTTL": "webhook-allowed-ttl", "$.authorizer.deniedTTL": "webhook-denied-ttl",
	"$.authorizer.cacheSize": "webhook-cache-size", "$.authorizer.checkTakes": "check-takes", "$.modes": "impersonation-modes",
	".mode": "mode", ".nodes": "nodes", ".daemonSets": "daemonsets", ".nameAlone": "name-alone", ".users": "users", ".groups": "groups",
	".extras": "extras", ".deputies": "deputies", ".serviceAccounts": "service-accounts", ".every": "every", ".requests": "requests",
}

func (f *predictFlags) register(fl *pflag.FlagSet) {
	fl.SortFlags = false
	p, w, a := &f.plan, &f.workload, &f.plan.Authorizer
	fl.IntVar(&w.Nodes, "nodes", 0, "how many nodes there are, each with an agent of every DaemonSet")
	fl.IntVar(&w.DaemonSets, "daemonsets", 0, "how many DaemonSets impersonate the node that they are on, or another one (default 1)")
	fl.DurationVar((*time.Duration)(&w.Every), "every", time.Duration(w.Every), "how often each agent or user asks")
	fl.StringVar(
		(*string)(&w.Mode),
		"mode",
		"",
		"the mode that serves it once it is constrained: associated-node, arbitrary-node, serviceaccount, user-info, or legacy, for what stays (default associated-node; with --users user-info)",
	)
	fl.StringVar(
		(*string)(&w.ServiceAccounts),
		"service-accounts",
		string(w.ServiceAccounts),
		"which pods have one together: shared (those of a DaemonSet, or of a deputy) or perAgent",
	)
	fl.BoolVar(&w.NameAlone, "name-alone", false, "agents impersonate a node by its name alone today, without the group system:nodes")
	fl.IntVar(&w.Requests, "requests", w.Requests, "how many different requests each agent or user sends in turn")
	fl.IntVar(&w.Users, "users", 0, "how many users a deputy acts for, such as a dashboard, instead of nodes")
	fl.IntVar(&w.Groups, "groups", 0, "how many groups each of them has")
	fl.IntVar(&w.Extras, "extras", 0, "how many values of extra each of them has")
	fl.IntVar(&w.Deputies, "deputies", 0, "how many pods the deputy has (default 1)")
	fl.IntVar(&p.APIServers, "api-servers", p.APIServers, "how many API servers there are, each with what it remembers itself")
	fl.StringVar(
		(*string)(&a.Chain),
		"authorizer",
		string(a.Chain),
		"the chain: webhook (before Node and RBAC), webhook-last, rbac (alone), none (everything is allowed)",
	)
	fl.StringVar(
		(*string)(&a.Answers),
		"webhook-answers",
		string(a.Answers),
		"what the webhook answers to what is allowed in the end: no-opinion (RBAC has the permissions) or allow",
	)
	fl.BoolVar(&a.Cache, "webhook-cache", a.Cache, "the API server remembers what the webhook answers")
	fl.DurationVar(
		(*time.Duration)(&a.Allowed),
		"webhook-allowed-ttl",
		time.Duration(a.Allowed),
		"how long it remembers that something is allowed",
	)
	fl.DurationVar((*time.Duration)(&a.Denied), "webhook-denied-ttl", time.Duration(a.Denied), "how long it remembers every other answer")
	fl.IntVar(&a.Size, "webhook-cache-size", a.Size, "how many answers it remembers")
	fl.DurationVar((*time.Duration)(&a.Takes), "check-takes", time.Duration(a.Takes), "how long one check takes")
	fl.DurationVar(
		(*time.Duration)(&p.Memory),
		"impersonation-ttl",
		time.Duration(p.Memory),
		"how long a success of a constrained mode is remembered",
	)
	fl.IntVar(&p.Modes, "impersonation-modes", p.Modes, "of how many requestors the last mode is remembered")
	fl.DurationVar(
		(*time.Duration)(&p.Within),
		"within",
		time.Duration(p.Within),
		"how long it takes until all have come back after a restart, or have started in a rollout",
	)
	fl.StringVar((*string)(&p.Gate), "gate", "", "on or off alone (default both, as clusters move)")
	fl.StringVar((*string)(&p.RBAC), "rbac", "", "legacy (as it is), constrained (as it will be) or none alone (default as clusters move)")
	fl.StringVarP(&f.file, "file", "f", "", "a YAML file with the cluster and its workloads; flags about the cluster come before it")
	fl.StringSliceVar(
		&f.auditLogs,
		"audit-log",
		nil,
		"files or folders of audit logs: what their requests cost, and would cost with the gate on",
	)
	fl.StringVarP(&f.output, "output", "o", "text", "text, json, yaml, or svg: a plot of the checks after a restart")
}

func (f *predictFlags) run(c *cobra.Command) error {
	if err := checkForm(f.output, "svg"); err != nil {
		return err
	}
	if len(f.auditLogs) > 0 {
		return f.predictLog(c)
	}
	at, err := f.complete(c)
	if err != nil {
		return err
	}
	if err := f.plan.Check(at); err != nil {
		return err
	}
	prediction, err := predict.Predict(&f.plan)
	if err != nil {
		return invalid(err)
	}
	return invalid(f.print(c.OutOrStdout(), prediction))
}

// complete puts the plan together. It returns where the value at each path comes from.
func (f *predictFlags) complete(c *cobra.Command) (at func(path string) string, err error) {
	inFile := func(string) string { return "" }
	isEmpty := !c.Flags().Changed("nodes") && !c.Flags().Changed("users")
	switch {
	case f.file != "":
		if inFile, err = f.readFile(c.Flags()); err != nil {
			return nil, err
		}
	case isEmpty:
		return nil, errors.New("nothing to predict (expected --nodes, --users, --file FILE or --audit-log FILE)")
	default:
		f.workload.Complete(0)
		f.plan.Workloads = []predict.Workload{f.workload}
	}
	return func(path string) string {
		flag := flagOfPath[workloadPath.ReplaceAllString(path, "")]
		isGiven := flag != "" && c.Flags().Changed(flag)
		if place := inFile(path); place != "" && !isGiven {
			return place
		}
		return "--" + flag
	}, nil
}

var workloadPath = regexp.MustCompile(`^\$\.workloads\[\d+\]`)

// readFile reads the file of the plan. Flags that were given come before it.
func (f *predictFlags) readFile(flags *pflag.FlagSet) (at func(path string) string, err error) {
	text, err := filing.Input(f.file)
	if err != nil {
		return nil, err
	}
	plan, at, err := predict.Parse(f.file, text)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	flags.Visit(func(flag *pflag.Flag) { values[flag.Name] = flag.Value.String() })
	f.plan = *plan
	for name, value := range values {
		if err := flags.Set(name, value); err != nil {
			return nil, err
		}
	}
	return at, nil
}

func (f *predictFlags) print(out io.Writer, p *predict.Prediction) error {
	switch f.output {
	case "svg":
		svg, err := p.Plot().SVG()
		if err == nil && svg == "" {
			err = errors.New("there is nothing to plot: " + p.NotSimulated)
		}
		if err == nil {
			_, err = fmt.Fprintln(out, svg)
		}
		return err
	case "text":
		return renderTable(out, "prediction", p, 0)
	}
	return printAs(out, f.output, "", p)
}

// predictLog predicts the cost of the requests in audit logs.
func (f *predictFlags) predictLog(c *cobra.Command) error {
	if f.output == "svg" {
		return errors.New("--output svg is about a plan: an audit log has text, json and yaml")
	}
	f.plan.Workloads = []predict.Workload{{
		Name:            "log",
		Nodes:           1,
		DaemonSets:      1,
		Requests:        1,
		ServiceAccounts: f.workload.ServiceAccounts,
		Every:           f.workload.Every,
		Mode:            "legacy",
	}}
	if err := f.plan.Check(func(path string) string { return "--" + flagOfPath[path] }); err != nil {
		return err
	}
	replay := &predict.Replay{}
	if err := readAuditLogs(c, f.auditLogs, replaySink{replay}, "predict"); err != nil {
		return err
	}
	prediction, err := replay.Predict(c.Context(), &f.plan)
	if err != nil {
		return invalid(cmp.Or(interruption(c), err))
	}
	if f.output == "text" {
		return invalid(renderTable(c.OutOrStdout(), "log prediction", prediction, 0))
	}
	return invalid(printAs(c.OutOrStdout(), f.output, "", prediction))
}

// replaySink collects the requests of audit events that impersonate.
type replaySink struct{ *predict.Replay }

// Add adds the request of an event once.
func (s replaySink) Add(e *auditv1.Event, isRepeated bool) error {
	if isRepeated {
		return nil
	}
	sender, err := advice.ReadSender(e)
	if err != nil {
		return err
	}
	if e.RequestReceivedTimestamp.IsZero() {
		return errors.New("an audit event without requestReceivedTimestamp")
	}
	s.Replay.Add(predict.LoggedRequest{
		At: e.RequestReceivedTimestamp.Time, Client: strings.Join(e.SourceIPs, ","),
		Requestor: sender.Requestor, As: sender.As, Request: sender.Request,
	})
	return nil
}

// namedFigures are one line of a prediction.
type namedFigures struct {
	Name string
	predict.Figures
}

func nameFigures(name string, f predict.Figures) namedFigures { return namedFigures{name, f} }

// formatRate returns a rate with as many digits as people read. rate is a number, or a pointer to one.
func formatRate(rate any) string {
	value := reflect.Indirect(reflect.ValueOf(rate)).Float()
	return predict.FormatRate(value)
}
