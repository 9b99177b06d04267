package granular

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/reports/statistics"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// claimDrivers are the numbers of drivers that one update of a ResourceClaim's status writes. More than 32 are possible
// only in a refused update: an API server checks permissions before it validates the status.
var claimDrivers = []int{1, 2, 4, 8, 16, 32, 64, 128, 256}

// mostDrivers is the largest number of devices, and so of drivers, of an allocated claim (AllocationResultsMaxSize of
// resource/v1).
const mostDrivers = resourcev1.AllocationResultsMaxSize

// claimPayer is an actor whose access reviews are counted while it writes the status of a claim.
type claimPayer struct {
	// name is the name of the actor in the table. holds describes its grants.
	name, holds string
	// verb is the verb that is granted for each driver, without ":patch". It is empty if none is granted.
	verb string
	// onNode has the actor's token bound to the node that the claim is allocated to.
	onNode bool
	// isAllowed is set if its updates are allowed.
	isAllowed bool
	// reviews returns the expected number of reviews of an update that writes n drivers.
	reviews func(drivers int) int
}

func claimPayers() []claimPayer {
	each := func(n int) int { return 1 + n }
	twice := func(n int) int { return 1 + 2*n }
	return []claimPayer{
		{"associated", "`associated-node:patch` for each driver, on the node", "associated-node", true, true, each},
		{"arbitrary", "`arbitrary-node:patch` for each driver, on no node", "arbitrary-node", false, true, each},
		{"arbitrary-on-the-node", "`arbitrary-node:patch` for each driver, on the node", "arbitrary-node", true, true, twice},
		{"status-alone", "the permission for the status alone, on no node", "", false, false, each},
		{"status-alone-on-the-node", "the permission for the status alone, on the node", "", true, false, twice},
	}
}

// driverName returns the name of a driver, by its number.
func driverName(i int) string { return fmt.Sprintf("d%03d.example.com", i) }

// claimStatus returns the status of a claim on a node that n drivers' devices are allocated to, without and with their
// reports.
func claimStatus(node string, n int) (allocated, reported resourcev1.ResourceClaimStatus) {
	isNode := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	nodes := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{isNode}}}}
	allocated.Allocation = &resourcev1.AllocationResult{NodeSelector: nodes}
	for i := range n {
		name := driverName(i)
		reported.Devices = append(reported.Devices, resourcev1.AllocatedDeviceStatus{Driver: name, Pool: "pool", Device: "one"})
		if i < mostDrivers {
			result := resourcev1.DeviceRequestAllocationResult{Request: "one", Driver: name, Pool: "pool", Device: "one"}
			allocated.Allocation.Devices.Results = append(allocated.Allocation.Devices.Results, result)
		}
	}
	return allocated, reported
}

// prepare provides the actor, and a claim with as many drivers as the update writes. It returns the user name of the
// actor, and a function that sends the update as a dry run, which causes the same reviews.
func (p claimPayer) prepare(ctx context.Context, b *Bench, n int) (user string, send func() error, _ error) {
	namespace := fmt.Sprintf("claims-%s-%d", p.name, n)
	user = "system:serviceaccount:" + namespace + ":" + account
	needs := &scenarios.Scenario{ID: namespace, Requestors: map[string]scenarios.Requestor{account: {ServiceAccount: p.account(namespace)}}}
	subject := scenarios.Subject{User: user}
	groups := []string{resourcev1.GroupName}
	needs.Grants = append(needs.Grants,
		scenarios.Grant{
			Subject:   subject,
			Namespace: namespace,
			Verbs:     []string{"patch"},
			APIGroups: groups,
			Resources: []string{"resourceclaims/status"},
		},
	)
	if p.verb != "" {
		needs.Grants = append(needs.Grants,
			scenarios.Grant{
				Subject:   subject,
				Namespace: namespace,
				Verbs:     []string{p.verb + ":patch"},
				APIGroups: groups,
				Resources: []string{"resourceclaims/driver"},
			},
		)
	}
	granted, err := b.replayer.Provision(ctx, needs)
	if err != nil {
		return user, nil, err
	}
	allocated, reported := claimStatus(nodeOf(namespace), n)
	claims := b.client.ResourceV1().ResourceClaims(namespace)
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim"}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{
		{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "things"}},
	}
	if claim, err = claims.Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return user, nil, err
	}
	claim.Status = allocated
	if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return user, nil, err
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"devices": reported.Devices}})
	if err != nil {
		return user, nil, err
	}
	config := rest.AnonymousClientConfig(b.server.Admin())
	config.BearerToken = granted.Token(account)
	client, err := kubernetes.NewForConfig(config)
	return user, func() error {
		dryRun := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
		_, err := client.ResourceV1().ResourceClaims(namespace).Patch(ctx, "claim", types.MergePatchType, body, dryRun, "status")
		return err
	}, err
}

// nodeOf returns the node that the claim of a namespace is allocated to.
func nodeOf(namespace string) string { return "node-of-" + namespace }

// account returns the ServiceAccount of the actor.
func (p claimPayer) account(namespace string) *scenarios.ServiceAccount {
	out := &scenarios.ServiceAccount{Namespace: namespace, Name: account}
	if p.onNode {
		out.Pod, out.Node = "pod", nodeOf(namespace)
	}
	return out
}

// countReviews returns how many access reviews of a user a request costs, as the recorder before the authorizers sees
// them.
func (b *Bench) countReviews(ctx context.Context, user string, send func() error) (count int, failure, err error) {
	batch, err := b.server.OpenBatch()
	if err != nil {
		return 0, nil, err
	}
	failure = send()
	recorded, err := batch.Close(ctx)
	if err != nil {
		return 0, nil, err
	}
	for _, r := range recorded.Reviews {
		isTheirs := r.Spec.User == user
		if isTheirs && r.Point == verdicts.Front {
			count++
		}
	}
	return count, failure, nil
}

// claimCosts counts the reviews that an update of a ResourceClaim's status causes, and returns the table, and the
// curves of the refused actors. These reviews belong to a check of fields that a real API server makes, and not to the
// KEP.
func claimCosts(t *testing.T, b *Bench) (table string, curves []statistics.Curve) {
	t.Helper()
	table = costHead(claimDrivers)
	for _, p := range claimPayers() {
		table += fmt.Sprintf("| %s | %s |", p.name, p.holds)
		curve := statistics.Curve{Name: "ResourceClaim: " + p.name}
		for _, n := range claimDrivers {
			if p.isAllowed && n > mostDrivers {
				table += " – |"
				continue
			}
			count := p.count(t, b, n)
			table += fmt.Sprintf(" %d |", count)
			curve.Points = append(curve.Points, statistics.Point{X: float64(n), Y: float64(count)})
		}
		table += " " + outcomeOf(p.isAllowed) + " |\n"
		if !p.isAllowed { // allowed updates cost the same, but only up to mostDrivers
			curves = append(curves, curve)
		}
	}
	return table, curves
}

// count returns the number of reviews of one update that writes n drivers, and compares it with the expected number.
func (p claimPayer) count(t *testing.T, b *Bench, n int) int {
	t.Helper()
	user, send, err := p.prepare(t.Context(), b, n)
	if err != nil {
		t.Fatalf("%s with %d drivers: %v", p.name, n, err)
	}
	count, failure, err := b.countReviews(t.Context(), user, send)
	if err != nil {
		t.Fatal(err)
	}
	isRefused := apierrors.IsInvalid(failure)
	isAsExpected := isRefused != p.isAllowed &&
		(isRefused || failure == nil)
	if !isAsExpected {
		t.Fatalf("%s with %d drivers: %v", p.name, n, failure)
	}
	if count != p.reviews(n) {
		t.Errorf("%s with %d drivers: %d reviews, want %d", p.name, n, count, p.reviews(n))
	}
	return count
}
