package deputy

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/verdicts"
)

// TestEachCluster tries the pre-flight and the revocation at each of two clusters: on a proxy that is right, and on proxies that are
// wrong at the second cluster alone.
func TestEachCluster(t *testing.T) {
	sample.InTurn(t, 1, 3)
	if testing.Short() {
		t.Skip("starts two control planes")
	}
	t.Parallel() // it mostly waits
	ctx := context.Background()
	people := sessions("alice@corp", "bob@corp")
	g := newGroup(options{seed: 3, pairs: 20, requests: 1, clusters: tunnelledClusters, proxy: &Proxy{People: people}}, legacy)
	planes := startTwoPlanesWith(ctx, t, g.grants(), g.namespaces())
	configs := proxyConfigs(planes)
	newDeputy := func(t *testing.T, fault string) *twoClusterDeputy {
		d, err := newTwoClusterDeputy(tunnelledClusters, configs, fault)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	// The same is granted at both clusters, so the answers are right. What the authorizer is asked shows the fault.
	for fault, want := range map[string]string{"": "", "reviews at the first": "and has to be asked"} {
		t.Run("preflight, it "+fault, func(t *testing.T) {
			ep, e := newDeputy(t, fault).serve(t, people, planes), &partEvidence{}
			o := &observer{sent: sentRequests{}}
			var err error
			if e.Preflight, err = o.observePreflight(ctx, g, ep); err != nil {
				t.Fatal(err)
			}
			if e.OtherPreflight, err = o.observePreflight(ctx, g, ep.secondEndpoint()); err != nil {
				t.Fatal(err)
			}
			checkEachCluster(t, g, preflightPart, e, want)
		})
	}
	for fault, want := range map[string]string{"": "", "keeps sessions elsewhere": "is let in"} {
		t.Run("revocation, it "+fault, func(t *testing.T) {
			d, e := newDeputy(t, fault), &partEvidence{}
			d.revoked = filepath.Join(t.TempDir(), "revoked")
			ep := d.serve(t, people, planes)
			ep.timeout = 3 * time.Second
			if err := ep.observeRevocation(ctx, "touch "+d.revoked, e); err != nil {
				t.Fatal(err)
			}
			checkEachCluster(t, g, revocationPart, e, want)
		})
	}
}

// checkEachCluster judges a part. At the first cluster nothing is wrong, and at the second what is wanted, or nothing.
func checkEachCluster(t *testing.T, g *group, part string, e *partEvidence, want string) {
	t.Helper()
	all, err := g.judge(part, e, false)
	if err != nil {
		t.Fatal(err)
	}
	if r := all[""].result(); r.Verdict != verdicts.Passed {
		t.Errorf("at the first cluster: %s, %s", r.Verdict, r.Reason)
	}
	there := all[g.secondClusterName]
	verdict := verdicts.Passed
	if want != "" {
		verdict = verdicts.Failed
	}
	said := fmt.Sprint(there.failures)
	if r := there.result(); r.Verdict != verdict || !strings.Contains(said, want) {
		t.Errorf("at the second cluster: %s, %s: %s; want %s by %q", r.Verdict, r.Reason, said, verdict, want)
	}
}

// TestOtherClusterIsPlanned shows that there is a case about the second cluster, and that without evidence of it nothing is judged.
func TestOtherClusterIsPlanned(t *testing.T) {
	p := newPlan(options{impersonation: []string{legacy}, pairs: 1, users: 1, requests: 1, clusters: []string{"east", "west"}})
	planned := map[string]int{}
	for _, c := range p.Cases() {
		planned[c.Name]++
	}
	if planned["preflight"] != 1 || planned["preflight/west"] != 1 {
		t.Errorf("planned: %v", planned)
	}
	g := p.groups[0]
	_, err := g.judgeRevocation(&partEvidence{Revocation: &revocationEvidence{}})
	if err == nil || !strings.Contains(err.Error(), "at the cluster west") {
		t.Error(err)
	}
}
