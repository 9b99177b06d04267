package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/client-go/discovery"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

const (
	featureMetric       = "kubernetes_feature_enabled"
	authorizationPrefix = "apiserver_authorization_"
	witnessUser         = "authzconf:witness"
	nobodysPath         = "/api/v1/secrets" // what no authorizer allows the witness
	// witnessNode is a node that exists nowhere: the Node authorizer, and nobody else, lets it read itself all the same.
	witnessNode = "authzconf-witness"
)

// witness reads back what the target is, and notes what is not as asked.
func (s *Server) witness(ctx context.Context, o Options) error {
	s.Facts = ExpectedFacts(o)
	switch {
	case s.can.Foreign:
		return s.witnessOutside(ctx, o)
	case !s.sees(o):
		return s.readBack(ctx, o)
	}
	return s.readBack(ctx, o, s.witnessChain, func(ctx context.Context) (err error) {
		if slices.Contains(s.Facts.Capabilities, scenarios.Metrics) {
			s.last, err = s.impersonationCounters(ctx)
		}
		return err
	})
}

// witnessOutside reads what a cluster says of itself that is observed from outside.
func (s *Server) witnessOutside(ctx context.Context, o Options) error {
	describer, describes := s.cluster.(clusters.Describer)
	if !describes {
		return fmt.Errorf("witness: a cluster of the provider %s does not say what it is", o.Cell.Provider)
	}
	facts, err := describer.Facts(ctx)
	if err != nil {
		return fmt.Errorf("witness: %w", err)
	}
	w := &s.Witness
	w.GitVersion, w.EmulatedVersion = facts.GitVersion, facts.Emulated
	w.ExpectedGate, w.GateMetric, w.GateProbe = s.Facts.Gate, scenarios.GateAbsent, &reports.GateProbe{Gate: facts.Gate}
	w.Mismatches = w.Judge(o.Cell, s.Facts.Capabilities)
	return nil
}

// readBack reads the version and the gate, and more, and compares them with what is asked.
func (s *Server) readBack(ctx context.Context, o Options, more ...func(context.Context) error) error {
	s.Witness.ExpectedGate = s.Facts.Gate
	gate := func(ctx context.Context) error { return s.witnessGate(ctx, o) }
	readers := []func(context.Context) error{s.witnessPrograms, s.witnessVersion, gate, s.witnessSettings, s.witnessComponents}
	for _, read := range append(readers, more...) {
		if err := read(ctx); err != nil {
			return fmt.Errorf("witness: %w", err)
		}
	}
	s.Witness.Mismatches = slices.DeleteFunc(s.Witness.Judge(o.Cell, s.Facts.Capabilities), func(m string) bool {
		return o.Plain != nil && m == reports.Unprobed // its authorizers are the caller's
	})
	return nil
}

func (s *Server) witnessPrograms(context.Context) error {
	plane, ok := s.Plane()
	if !ok {
		return nil
	}
	s.Witness.Programs = nil
	for _, p := range []local.Program{plane.Programs().KubeAPIServer, plane.Programs().Etcd} {
		digest, err := local.Digest(p.Path)
		if err != nil {
			return fmt.Errorf("the digest of %s: %w", p.Name, err)
		}
		s.Witness.Programs = append(s.Witness.Programs,
			reports.Program{Name: p.Name, Version: p.Version, Origin: p.Origin, Source: p.Source, SHA256: digest},
		)
	}
	return nil
}

func (s *Server) witnessVersion(ctx context.Context) error {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(s.Admin(), s.adminHTTP)
	if err != nil {
		return err
	}
	v, err := client.ServerVersionWithContext(ctx)
	if err != nil {
		return fmt.Errorf("GET /version: %w", err)
	}
	w := &s.Witness
	w.GitVersion, w.Platform = v.GitVersion, v.Platform
	if v.EmulationMajor != "" {
		w.EmulatedVersion = v.EmulationMajor + "." + v.EmulationMinor
	}
	return nil
}

// witnessGate reads the gate from the metric, and from the refusal of groups without a user, which needs no permission.
func (s *Server) witnessGate(ctx context.Context, o Options) error {
	families, err := s.scrapeNamed(ctx, featureMetric)
	if err != nil {
		return err
	}
	w := &s.Witness
	w.GateMetric = readGateMetric(families[featureMetric], GateName)
	if w.FeatureGate = expectedFeatureGate(o); w.FeatureGate != nil {
		w.FeatureGate.Metric = readGateMetric(families[featureMetric], w.FeatureGate.Name)
	}
	client, err := s.UserClient(scenarios.Requestor{User: witnessUser}, nil, func(*http.Request) {})
	if err != nil {
		return err
	}
	a, err := s.ask(ctx, client, "/version", http.Header{"Impersonate-Group": {"authzconf"}})
	if err != nil {
		return err
	}
	w.GateProbe = &reports.GateProbe{Code: a.code, Message: a.message, Gate: reports.DetectGate(a.message)}
	return nil
}

// readGateMetric returns the state of a gate by the metric of an API server: on, off or absent.
func readGateMetric(family *dto.MetricFamily, name string) scenarios.Gate {
	value, isThere := gaugeValues(family, "name")[name]
	switch {
	case !isThere:
		return scenarios.GateAbsent
	case value == 1:
		return scenarios.GateOn
	}
	return scenarios.GateOff
}

type answer struct {
	code             int
	message, auditID string
}

func (s *Server) ask(ctx context.Context, client *http.Client, path string, h http.Header) (a answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.host+path, nil)
	if err != nil {
		return a, err
	}
	maps.Copy(req.Header, h)
	resp, err := client.Do(req)
	if err != nil {
		return a, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	a = answer{resp.StatusCode, strings.TrimSpace(string(body)), resp.Header.Get("Audit-Id")}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		a.message = status.Message
	}
	return a, err
}

type probe struct {
	Groups []string `json:"groups"` // the requestor's, Path what it gets
	Path   string   `json:"path"`
}

// witnessChain proves each authorizer by a request that it has a part in: the node's own Node object by Node, /version
// by RBAC, a request that nobody allows by reaching both ends of the chain, and what the chain itself adds.
func (s *Server) witnessChain(ctx context.Context) error {
	w := &s.Witness
	w.AskedAuthorizers = s.between.listAuthorizers()
	probes := append(
		[]probe{{Path: "/version"}, {Path: nobodysPath}, {Groups: []string{"system:nodes"}, Path: "/api/v1/nodes/" + witnessNode}},
		s.between.Probes...)
	before, err := s.authorizerActs(ctx)
	if err != nil {
		return err
	}
	mark := s.recorder.Mark()
	for _, p := range probes {
		requestor := scenarios.Requestor{User: witnessUser, Groups: p.Groups}
		if slices.Contains(p.Groups, "system:nodes") {
			requestor.User = "system:node:" + witnessNode
		}
		client, err := s.UserClient(requestor, nil, func(*http.Request) {})
		if err != nil {
			return err
		}
		if _, err := s.ask(ctx, client, p.Path, nil); err != nil {
			return err
		}
	}
	arrivals := map[recorder.Point]int{}
	// Others may send requests meanwhile, see package upgrade.
	for _, r := range s.recorder.Since(mark, witnessUser, "system:node:"+witnessNode) {
		arrivals[r.Point]++
	}
	w.Probes = &reports.ProbeCount{Sent: len(probes), Front: arrivals[recorder.Front], Back: arrivals[recorder.Back]}
	return s.witnessMetrics(ctx, before)
}

// listAuthorizers returns the authorizers between the two ends of the recorder, with these.
func (m middle) listAuthorizers() []reports.Authorizer {
	authorizers := seq.Map(m.Authorizers, func(a apiserverv1.AuthorizerConfiguration) reports.Authorizer {
		return reports.Authorizer{Type: a.Type, Name: a.Name}
	})
	return slices.Concat(
		[]reports.Authorizer{{Type: "Webhook", Name: "recorder-front"}},
		authorizers,
		[]reports.Authorizer{{Type: "Webhook", Name: "recorder-back"}},
	)
}

// authorizerActs are the API server's counters of what authorizers did, by metric and authorizer.
func (s *Server) authorizerActs(ctx context.Context) (map[string]map[string]float64, error) {
	families, err := s.Scrape(ctx, authorizationPrefix)
	if err != nil {
		return nil, err
	}
	acts := map[string]map[string]float64{}
	for name, family := range families {
		acts[name] = gaugeValues(family, "name")
	}
	return acts, nil
}

// witnessMetrics looks for each authorizer among the API server's counters of what authorizers did: decisions, calls
// of a webhook, match conditions that kept one from being called. Only what the probes have added since before counts:
// the API server may have served another chain with authorizers of the same names.
func (s *Server) witnessMetrics(ctx context.Context, before map[string]map[string]float64) error {
	acts, err := s.authorizerActs(ctx)
	if err != nil {
		return err
	}
	for _, a := range s.Witness.AskedAuthorizers {
		evidence := ""
		for _, name := range slices.Sorted(maps.Keys(acts)) {
			if acts[name][a.Name] > before[name][a.Name] {
				evidence = fmt.Sprintf("%s{name=%q} > %v", name, a.Name, before[name][a.Name])
				break
			}
		}
		if evidence == "" {
			continue
		}
		s.Witness.SeenAuthorizers = append(s.Witness.SeenAuthorizers, reports.AuthorizerEvidence{Authorizer: a, Evidence: evidence})
	}
	return nil
}
