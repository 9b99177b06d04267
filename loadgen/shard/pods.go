package shard

import (
	"context"
	_ "embed" // for the manifest
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/image"
	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/run"
)

const (
	podProgram = "github.com/authzconf/authzconf/loadgen/shard/program"
	// PathVariable names a shard that is built already (see image.Program).
	PathVariable = "AUTHZCONF_SHARD"
	podPath      = "/shard"
	// planLabel is a label of the Secrets and Jobs of a storm. Its value is the beginning of the names of its Secrets.
	planLabel = "authzconf.dev/shards"

	startTimeout  = 3 * time.Minute
	deleteTimeout = time.Minute
	// restBefore is how long before a block's start only what belongs to the block is done.
	restBefore = 2 * time.Second
	// leastCreation is the shortest time that the creation of a Job is assumed to need. A storm may slow down what was
	// quick in the rehearsal, on an idle cluster.
	leastCreation = 5 * time.Second
	// spareLife is how much longer than the block its pods may live, because nobody may be left to end them.
	spareLife = 10 * time.Minute
)

// Namespace is the namespace of the Jobs.
const Namespace = "authzconf-load"

//go:embed job.yaml
var manifest string

// Pods send blocks from pods. Each block is an Indexed Job of its own. Its pods know their part of the agents from
// their index, get start and seed from their environment and tokens from Secrets, and need no permission. They write
// what they count to their logs. See docs/adr/0052-jobs-of-shards.md.
type Pods struct {
	config *rest.Config
	client kubernetes.Interface
	plan   Job
	// template is the Job of a block without its order.
	template *batchv1.Job
	// lead is how long before its start a block's Job is created. start is the start of the last block.
	lead  time.Duration
	start time.Time
	// now is the Job that runs. It is nil before the first block, and after the Job was removed.
	now *jobOfBlock
	// ownClock is how the coordinator's clock compares with the API server's.
	ownClock clockReading
}

// render sets a run's numbers in the manifest. life is the time after which the cluster ends the pods, if nobody else
// has. image, if it is given, is one that the nodes can pull.
func render(shards int, life time.Duration, image string) (*corev1.Namespace, *batchv1.Job, error) {
	var space corev1.Namespace
	var job batchv1.Job
	first, second, _ := strings.Cut(manifest, "\n---\n")
	decoder := scheme.Codecs.UniversalDeserializer()
	if _, _, err := decoder.Decode([]byte(first), nil, &space); err != nil {
		return nil, nil, fmt.Errorf("job.yaml: %w", err)
	}
	if _, _, err := decoder.Decode([]byte(second), nil, &job); err != nil {
		return nil, nil, fmt.Errorf("job.yaml: %w", err)
	}
	n, seconds := int32(shards), int64(life/time.Second)
	job.Spec.Completions, job.Spec.Parallelism, job.Spec.ActiveDeadlineSeconds = &n, &n, &seconds
	if c := &job.Spec.Template.Spec.Containers[0]; image != "" {
		c.Image, c.ImagePullPolicy = image, corev1.PullIfNotPresent
	}
	return &space, &job, nil
}

// LoadImage builds the image of the shard and brings it to the nodes.
func LoadImage(ctx context.Context, nodes image.Loader) error {
	_, job, err := render(1, time.Hour, "")
	if err != nil {
		return err
	}
	shard, err := image.Of(ctx, job.Spec.Template.Spec, PathVariable, podProgram, podPath)
	if err != nil {
		return err
	}
	return shard.Load(ctx, nodes)
}

// CreatePods puts what the shards have to know into the cluster, and rehearses: it creates a Job whose pods open their
// connections, and removes it. So an image that cannot be pulled shows before the first block, and it is known how long
// pods take to be ready. After an error nothing remains. plan is the plan of all shards, in which Index has no meaning.
// image, if it is given, is pulled; otherwise LoadImage brings one to the nodes.
func CreatePods(ctx context.Context, config *rest.Config, plan Job, image string) (_ *Pods, err error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	life := plan.Profile.Block + plan.Profile.Timeout + plan.Profile.WarmUp() + startTimeout + spareLife
	space, template, err := render(plan.Count, life, image)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("storm-%x", time.Now().UnixNano()) // may exist beside that of another run
	secrets, err := writePlan(plan, template.Namespace, name)
	if err != nil {
		return nil, err
	}
	mountPlan(&template.Spec.Template.Spec, secrets)
	template.Name, template.GenerateName = "", template.Name+"-"
	template.Labels = map[string]string{planLabel: name}
	p := &Pods{config: config, client: client, plan: plan, template: template}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if _, err := client.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating the namespace of the shards: %w", err)
	}
	for _, s := range secrets {
		if _, err := client.CoreV1().Secrets(s.Namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("creating the Secrets of the shards: %w", err)
		}
	}
	return p, p.rehearse(ctx)
}

// rehearse creates a Job as for a block that begins long after the pods are ready, and removes it when they are.
func (p *Pods) rehearse(ctx context.Context) error {
	var o Order
	for server := range p.plan.Servers {
		o.Side.Server = server
	}
	for _, side := range p.plan.Profile.Sides() {
		if side.Server == o.Side.Server {
			o.Side = side
		}
	}
	begin := time.Now()
	o.Start = begin.Add(2 * startTimeout)
	if err := p.create(ctx, o); err != nil {
		return err
	}
	p.allow(time.Since(begin))
	return p.remove(ctx)
}

// allow makes later Jobs be created so early that their pods are ready in time even if they take twice as long as the
// last Job.
func (p *Pods) allow(took time.Duration) {
	p.lead = max(p.lead, 2*max(took, leastCreation)+2*restBefore+lead(&p.plan.Profile))
}

// create creates the Job of a block, and returns when all of its pods are ready.
func (p *Pods) create(ctx context.Context, o Order) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	object := p.template.DeepCopy()
	c := &object.Spec.Template.Spec.Containers[0]
	c.Env = append(c.Env, corev1.EnvVar{Name: orderVariable, Value: string(text)})
	if object, err = p.client.BatchV1().Jobs(object.Namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the Job of the shards: %w", err)
	}
	p.now = newJobOfBlock(p.client, object, p.plan.Count)
	return p.now.awaitReady(ctx)
}

// Lead returns how long before its start a block's Job is created, as the rehearsal has shown.
func (p *Pods) Lead() time.Duration { return p.lead }

// Prepare implements Generator. It creates the block's Job, and returns shortly before the block starts. By then the
// pods are ready, and what that took is over.
func (p *Pods) Prepare(ctx context.Context, o Order) (err error) {
	if o.Sends != nil {
		return errors.New("some requests of a block alone are sent by processes only, not by pods")
	}
	if err := p.remove(ctx); err != nil {
		return err
	}
	if p.ownClock, err = compareClock(ctx, p.config); err != nil {
		return fmt.Errorf("comparing clocks with the API server: %w", err)
	}
	begin := time.Now()
	p.start = begin.Add(p.lead)
	o.Start = p.start
	if err := p.create(ctx, o); err != nil {
		return err
	}
	p.allow(time.Since(begin))
	pause := time.Until(p.start) - restBefore - lead(&p.plan.Profile)
	if pause < 0 {
		return fmt.Errorf(
			"the shards were ready %s before the block was to start, and %s is needed: the cluster's nodes are slower now than for the Jobs before",
			time.Until(p.start).Round(time.Millisecond),
			restBefore,
		)
	}
	clusters.Pause(ctx, pause)
	return ctx.Err()
}

// Start implements Generator. It returns the start that the pods of the Job got.
func (p *Pods) Start() time.Time { return p.start }

// Block implements Generator. If a shard is lost, the block has what the others counted.
func (p *Pods) Block(ctx context.Context, o Order) (whole *run.Block, err error) {
	length := p.plan.Profile.Block
	if o.WarmUp {
		length = p.plan.Profile.WarmUp()
	}
	limit := time.Until(o.Start) + length + p.plan.Profile.Timeout + blockTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("%w: it has not handed over its block %s after the last answer was due", errLost, blockTimeout))
	defer cancel()
	blocks, errs := p.now.awaitBlocks(ctx)
	return merge(blocks), errors.Join(errs...)
}

// Live implements Generator. What pods have counted is known only after a block, because nobody asks them through the
// API server that is under load.
func (p *Pods) Live() agent.Live { return agent.Live{} }

// Clocks implements Generator. Both sides have compared their clocks with the API server's before the block.
func (p *Pods) Clocks(context.Context) (all []run.Clock, err error) {
	if p.now == nil {
		return nil, nil
	}
	var errs []error
	for i, s := range p.now.shards {
		if s.clock == nil {
			continue
		}
		c := run.Clock{
			Shard:       shardName(i, p.plan.Count),
			Offset:      run.Duration(s.clock.Offset - p.ownClock.Offset),
			Uncertainty: run.Duration(s.clock.Uncertainty + p.ownClock.Uncertainty),
		}
		all, errs = append(all, c), append(errs, Judge(c))
	}
	return all, errors.Join(errs...)
}

// remove deletes the Job of the last block, and returns when its pods are gone, because what they still do would count
// for the next block.
func (p *Pods) remove(ctx context.Context) error {
	if p.now == nil {
		return nil
	}
	if err := p.delete(ctx); err != nil {
		return err
	}
	object := p.now.object
	p.now.close()
	p.now = nil
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, deleteTimeout, true, func(ctx context.Context) (bool, error) {
		pods, err := p.client.CoreV1().Pods(object.Namespace).List(ctx, podsOf(object))
		return err == nil && len(pods.Items) == 0, err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("the pods of %s are not gone after %s", object.Name, deleteTimeout)
	}
	return err
}

// delete deletes the Job of the last block with its pods.
func (p *Pods) delete(ctx context.Context) error {
	object := p.now.object
	err := p.client.BatchV1().Jobs(object.Namespace).Delete(ctx, object.Name, withPods())
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the Job of the shards: %w", err)
	}
	return nil
}

// Close implements Generator. It deletes the Secrets and every Job with its pods, even a Job whose creation was no
// longer answered.
func (p *Pods) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	if p.now != nil {
		p.now.close()
		p.now = nil
	}
	options := metav1.ListOptions{LabelSelector: planLabel + "=" + p.template.Labels[planLabel]}
	var errs []error
	if err := p.client.BatchV1().Jobs(p.template.Namespace).DeleteCollection(ctx, withPods(), options); err != nil {
		errs = append(errs, fmt.Errorf("deleting the Jobs of the shards: %w", err))
	}
	if err := p.client.CoreV1().Secrets(p.template.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, options); err != nil {
		errs = append(errs, fmt.Errorf("deleting the Secrets of the shards: %w", err))
	}
	return errors.Join(errs...)
}

// withPods returns options that delete a Job with its pods.
func withPods() metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
}
