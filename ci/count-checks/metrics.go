package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// checksMetric has how many checks of impersonation an API server has made; what it remembers is not counted.
const checksMetric = "apiserver_impersonation_authorization_attempts_total"

// readChecks returns how many checks of impersonation an API server has made.
func readChecks(ctx context.Context, admin *rest.Config) (checks float64, err error) {
	client, err := discovery.NewDiscoveryClientForConfig(admin)
	if err != nil {
		return 0, err
	}
	stream, err := client.RESTClient().Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(stream)
	if err != nil {
		return 0, err
	}
	family, isThere := families[checksMetric]
	if !isThere {
		return 0, fmt.Errorf("the API server has no metric %s: expected Kubernetes 1.36 or later, with the gate on", checksMetric)
	}
	for _, m := range family.GetMetric() {
		checks += m.GetCounter().GetValue()
	}
	return checks, nil
}
