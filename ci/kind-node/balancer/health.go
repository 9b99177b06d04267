package main

import (
	"context"
	"crypto/tls"
	"net/http"
	"slices"
	"sync"
	"time"
)

// healthPath is what kind has envoy ask API servers, and healthTimeout is how long one may take.
const (
	healthPath    = "/healthz"
	healthTimeout = time.Second
)

// healthClient trusts whoever answers, as kind has envoy do, and holds no connections: an API server that ends would wait for them.
var healthClient = &http.Client{
	Timeout:   healthTimeout,
	Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
}

// chooseHealthy returns the backends that say that they are healthy; all of them if none does, which is envoy's panic mode.
func chooseHealthy(ctx context.Context, backends []string) []string {
	healthy := make([]bool, len(backends))
	var checks sync.WaitGroup
	for i, backend := range backends {
		checks.Go(func() { healthy[i] = isHealthy(ctx, backend) })
	}
	checks.Wait()
	var chosen []string
	for i, backend := range backends {
		if healthy[i] {
			chosen = append(chosen, backend)
		}
	}
	if len(chosen) == 0 {
		return slices.Clone(backends)
	}
	return chosen
}

func isHealthy(ctx context.Context, backend string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+backend+healthPath, nil)
	if err != nil {
		return false
	}
	answer, err := healthClient.Do(request)
	if err != nil {
		return false
	}
	return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
}
