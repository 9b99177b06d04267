package server

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/verdicts"
)

// series identifies one impersonation counter. others are its further labels, which it should not have.
type series struct{ name, mode, decision, others, kind string }

type counters map[series]counterValue

// counterValue is how often something was counted, and for a histogram, also the sum of what was.
type counterValue struct {
	times     int
	histogram bool
	sum       float64
}

const (
	impersonationPrefix = "apiserver_impersonation_"
	filterMetric        = "apiserver_request_filter_duration_seconds_count"
)

// Metric families that are read beside those of authorization.
const (
	// ProcessStartMetric is a gauge of every Go program: when it began, in seconds since 1970.
	ProcessStartMetric = "process_start_time_seconds"
	// ObjectivesMetric is the API server's own indicator for the objectives of Kubernetes, a histogram by verb, resource and
	// scope.
	ObjectivesMetric = "apiserver_request_sli_duration_seconds"
)

//go:embed metrics.yaml
var metricsYAML []byte

// knownFamilies are the names of the API server's metric families, by what they are for.
var knownFamilies = fixtures.Table[struct{ Impersonation, Authorization, Bulky []string }]("metrics.yaml", metricsYAML)

// Scrape reads the API server's metric families whose names begin with one of the prefixes.
// Only their lines are parsed: an API server has megabytes of others.
func (s *Server) Scrape(ctx context.Context, prefixes ...string) (map[string]*dto.MetricFamily, error) {
	return s.read(ctx, "/metrics", prefixes)
}

// scrapeNamed reads metric families by their whole names. kube-apiserver 1.37 renders only these then, which takes a
// third of the time (name[], prometheus/client_golang v1.24); an older one sends everything.
func (s *Server) scrapeNamed(ctx context.Context, families ...string) (map[string]*dto.MetricFamily, error) {
	return s.read(ctx, "/metrics?"+url.Values{"name[]": families}.Encode(), families)
}

func (s *Server) read(ctx context.Context, path string, prefixes []string) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.host+path, nil)
	if err != nil {
		return nil, err
	}
	// Compressing what never leaves the machine would cost more than reading it.
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := s.adminHTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reading /metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading /metrics: %s", resp.Status)
	}
	var buffer bytes.Buffer
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if isWanted(lines.Bytes(), prefixes) {
			buffer.Write(lines.Bytes())
			buffer.WriteByte('\n')
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&buffer)
	if err = errors.Join(lines.Err(), err); err != nil {
		return nil, fmt.Errorf("reading /metrics: %w", err)
	}
	return families, nil
}

// isWanted reports whether a line ("# HELP name", "# TYPE name" or a sample) belongs to a family with one of the prefixes.
func isWanted(line []byte, prefixes []string) bool {
	s := strings.TrimPrefix(strings.TrimPrefix(string(line), "# HELP "), "# TYPE ")
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// CountAuthorization reads the authorization metrics; increases does it again, and says by how much they moved. Nobody
// else may use the target meanwhile.
func (s *Server) CountAuthorization(ctx context.Context) (increases func() ([]verdicts.MetricSample, error), err error) {
	before, err := s.countersOf(ctx, knownFamilies.Authorization)
	return func() ([]verdicts.MetricSample, error) {
		after, err := s.countersOf(ctx, knownFamilies.Authorization)
		samples := after.since(before)
		for i := range samples {
			switch m := &samples[i]; {
			case m.Name == filterMetric:
				// Every filter counts every request: of the one that matters here it is only recorded that it did.
				m.Delta, m.Seconds = 1, nil
			case m.CountsAllowed():
				m.Delta-- // the first reading, which was allowed itself
			}
		}
		return slices.DeleteFunc(samples, func(m verdicts.MetricSample) bool {
			isOtherFilter := m.Name == filterMetric && !strings.Contains(strings.Join(m.Labels, ""), "impersonation")
			return isOtherFilter || m.Delta == 0
		}), err
	}, err
}

func (s *Server) impersonationCounters(ctx context.Context) (counters, error) {
	return s.countersOf(ctx, knownFamilies.Impersonation)
}

// countersOf reads counters, and the counts and sums of histograms under their name with _count.
func (s *Server) countersOf(ctx context.Context, names []string) (counters, error) {
	families, err := s.scrapeNamed(ctx, names...)
	if err != nil {
		return nil, err
	}
	total := counters{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			key := series{name: name, kind: strings.ToLower(family.GetType().String())}
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case "mode":
					key.mode = l.GetValue()
				case "decision":
					key.decision = l.GetValue()
				default:
					key.others += l.GetName() + "=" + l.GetValue() + "\n"
				}
			}
			if h := m.GetHistogram(); h != nil {
				key.name += "_count"
				total[key] = counterValue{times: int(h.GetSampleCount()), histogram: true, sum: h.GetSampleSum()}
				continue
			}
			total[key] = counterValue{times: int(math.Round(m.GetCounter().GetValue()))}
		}
	}
	return total, nil
}

// increases is what the impersonation counters have moved by since they were read before; nil where there are none.
func (s *Server) increases(ctx context.Context) ([]verdicts.MetricSample, error) {
	before := s.last
	if before == nil {
		return nil, nil
	}
	now, err := s.impersonationCounters(ctx)
	if err != nil {
		return nil, err
	}
	s.last = now
	return now.since(before), nil
}

// UnknownFamilies fails if the API server has counted impersonation in a metric that no scenario was judged by.
func (s *Server) UnknownFamilies(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || s.Err() != nil {
		return nil
	}
	families, err := s.Scrape(ctx, impersonationPrefix)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if !slices.Contains(knownFamilies.Impersonation, name) {
			return fmt.Errorf("the API server counts %s, which nothing here judges", name)
		}
	}
	return nil
}

// since is the increase from before to c, sorted; series that did not move are left out.
func (c counters) since(before counters) []verdicts.MetricSample {
	samples := []verdicts.MetricSample{}
	for s, n := range c {
		d := n.times - before[s].times
		if d == 0 {
			continue
		}
		sample := verdicts.MetricSample{Name: s.name, Mode: s.mode, Decision: s.decision, Delta: d, Type: s.kind}
		if s.others != "" {
			sample.Labels = strings.Split(strings.TrimSuffix(s.others, "\n"), "\n")
		}
		if n.histogram {
			seconds := n.sum - before[s].sum
			sample.Seconds = &seconds
		}
		samples = append(samples, sample)
	}
	for s, n := range before {
		if _, ok := c[s]; !ok && n.times != 0 { // a counter went away: the server restarted
			samples = append(samples, verdicts.MetricSample{Name: s.name, Mode: s.mode, Decision: s.decision, Delta: -n.times})
		}
	}
	slices.SortFunc(samples, func(a, b verdicts.MetricSample) int { return strings.Compare(a.Series(), b.Series()) })
	return samples
}

func gaugeValues(family *dto.MetricFamily, label string) map[string]float64 {
	values := map[string]float64{}
	for _, m := range family.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label {
				values[l.GetValue()] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return values
}

// Rebase takes the impersonation counters now for those after the last request: others have sent some meanwhile.
func (s *Server) Rebase(ctx context.Context) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recount(ctx)
}

// recount is needed by the scenarios to come, also where the time of the one that asks for it is over. Counters that cannot
// be read are not taken for none: every scenario behind would be judged without.
func (s *Server) recount(ctx context.Context) error {
	if s.last == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	now, err := s.impersonationCounters(ctx)
	if err == nil {
		s.last = now
	}
	return err
}
