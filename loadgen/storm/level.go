package storm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// levelName is what the agents' FlowSchema and priority level are called.
	levelName = "authzconf-storm"
	// levelPrecedence is before those of nodes and service accounts, and behind that of administrators.
	levelPrecedence = 50
	levelTimeout    = time.Minute
)

// makeLevel makes the agents' own level of priority and fairness, and waits until every API server has it.
func (r *runner) makeLevel(ctx context.Context, s *server) error {
	admin, _ := s.targets[0].Credentials()
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, levelTimeout, fmt.Errorf("the API server did not take over the priority level %s within %s", levelName, levelTimeout))
	defer cancel()
	shares, none := int32(r.Profile.PriorityLevel.ConcurrencyShares), int32(0)
	_, err = client.FlowcontrolV1().PriorityLevelConfigurations().Create(ctx, &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: levelName},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: &shares, LendablePercent: &none, BorrowingLimitPercent: &none,
			LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
		}},
	}, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		_, err = client.FlowcontrolV1().FlowSchemas().Create(ctx, &flowcontrolv1.FlowSchema{
			ObjectMeta: metav1.ObjectMeta{Name: levelName},
			Spec: flowcontrolv1.FlowSchemaSpec{
				PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: levelName}, MatchingPrecedence: levelPrecedence,
				Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
					// It is the impersonated user that is judged, who may be anybody.
					Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: "system:authenticated"}}},
					ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
						Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}, ClusterScope: true, Namespaces: []string{"*"},
					}},
				}},
			},
		}, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) {
		return s.awaitLevel(ctx) // that of the other side, on the same etcd
	}
	if err != nil {
		return fmt.Errorf("creating the priority level of the agents: %w", err)
	}
	r.undo = append(r.undo, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		return errors.Join(client.FlowcontrolV1().FlowSchemas().Delete(ctx, levelName, metav1.DeleteOptions{}),
			client.FlowcontrolV1().PriorityLevelConfigurations().Delete(ctx, levelName, metav1.DeleteOptions{}))
	})
	return s.awaitLevel(ctx)
}

// awaitLevel waits until all API servers have seats for the level. Their metrics say so, and nothing else does.
func (s *server) awaitLevel(ctx context.Context) error {
	const seats = flowControl + "nominal_limit_seats"
	for left := slices.Clone(s.targets); len(left) > 0; {
		families, err := left[0].Scrape(ctx, seats)
		if err != nil {
			return err
		}
		for _, m := range families[seats].GetMetric() {
			if m.GetLabel()[0].GetValue() == levelName && m.GetGauge().GetValue() > 0 {
				left = left[1:]
				break
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}
