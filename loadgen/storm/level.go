package storm

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// levelYAML is the agents' priority level, and the FlowSchema that leads to it; both are called levelName.
//
//go:embed level.yaml
var levelYAML []byte

const (
	levelName    = "authzconf-storm"
	levelTimeout = time.Minute
)

// makeLevel creates the agents' own level of priority and fairness, and waits until every API server has it.
func (r *runner) makeLevel(ctx context.Context, s *controlPlane) error {
	client, err := kubernetes.NewForConfig(s.targets[0].Admin())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(
		ctx,
		levelTimeout,
		fmt.Errorf("the API server did not take over the priority level %s within %s", levelName, levelTimeout),
	)
	defer cancel()
	var objects struct {
		Level  flowcontrolv1.PriorityLevelConfiguration
		Schema flowcontrolv1.FlowSchema
	}
	if err := yaml.UnmarshalStrict(levelYAML, &objects); err != nil {
		return err
	}
	objects.Level.Spec.Limited.NominalConcurrencyShares = new(int32(r.Profile.PriorityLevel.ConcurrencyShares))
	levels, schemas := client.FlowcontrolV1().PriorityLevelConfigurations(), client.FlowcontrolV1().FlowSchemas()
	if _, err = levels.Create(ctx, &objects.Level, metav1.CreateOptions{}); err == nil {
		_, err = schemas.Create(ctx, &objects.Schema, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) {
		return s.awaitLevel(ctx) // the level of the other side, on the same etcd
	}
	if err != nil {
		return fmt.Errorf("creating the priority level of the agents: %w", err)
	}
	r.undo = append(r.undo, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		return errors.Join(schemas.Delete(ctx, levelName, metav1.DeleteOptions{}), levels.Delete(ctx, levelName, metav1.DeleteOptions{}))
	})
	return s.awaitLevel(ctx)
}

// awaitLevel waits until all API servers have seats for the level. Their metrics say so, and nothing else does.
func (s *controlPlane) awaitLevel(ctx context.Context) error {
	const seats = flowControl + "nominal_limit_seats"
	for _, t := range s.targets {
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			families, err := t.Scrape(ctx, seats)
			return slices.ContainsFunc(families[seats].GetMetric(), func(m *dto.Metric) bool {
				return m.GetLabel()[0].GetValue() == levelName && m.GetGauge().GetValue() > 0
			}), err
		})
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
	}
	return nil
}
