package server

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/reports"
)

// disabledMetric counts the metrics that an API server was told to switch off (k8s.io/component-base/metrics).
const disabledMetric = "disabled_metrics_total"

// Admission plugins that are on by default, and that some API servers of the harness go without.
const (
	namespaceLifecycle = "NamespaceLifecycle"
	serviceAccount     = "ServiceAccount"
)

// expectedSettings returns what the API server is to have otherwise than by default.
func expectedSettings(o Options) *reports.Settings {
	can := o.Capabilities()
	if !can.Recorder {
		return nil
	}
	var args []string
	switch {
	case o.Plain != nil:
		args = o.Plain.Args
	case !o.Cell.Unchanged:
		args = Args(o.KeepMetrics...)
	}
	settings := reports.ReadSettings(args)
	if !o.Cell.Unchanged && !can.Nodes { // see clusters/local/arguments.yaml
		settings.AdmissionOff = append(settings.AdmissionOff, serviceAccount)
	}
	return &settings
}

// LacksAccounts reports whether the API server asks for the default ServiceAccount of a pod's namespace, and no controller
// runs that would have made it.
func (s *Server) LacksAccounts() bool { return s.Cell.Unchanged && !s.can.Nodes }

// witnessSettings reads back what the API server has otherwise than by default: from its behaviour, and from the command
// line of its process.
func (s *Server) witnessSettings(ctx context.Context) (err error) {
	if !s.can.Recorder {
		return nil
	}
	w := &s.Witness
	w.AskedSettings = expectedSettings(s.started)
	settings := &reports.Settings{}
	if settings.AdmissionOff, err = s.probeAdmission(ctx); err != nil {
		return err
	}
	families, err := s.scrapeNamed(ctx, disabledMetric)
	if err != nil {
		return err
	}
	for _, m := range families[disabledMetric].GetMetric() {
		settings.MetricsOff += int(m.GetCounter().GetValue())
	}
	w.SeenSettings = settings
	commands, reads := s.cluster.(clusters.CommandReader)
	if !reads {
		return nil
	}
	if w.Arguments, err = commands.ReadCommand(ctx); err != nil {
		return fmt.Errorf("the command line of kube-apiserver: %w", err)
	}
	return nil
}

// probeAdmission returns which admission plugins are off, as dry runs of what each would refuse show.
func (s *Server) probeAdmission(ctx context.Context) (off []string, err error) {
	client, err := kubernetes.NewForConfigAndClient(s.Admin(), s.adminHTTP)
	if err != nil {
		return nil, err
	}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	nowhere := metav1.ObjectMeta{Name: witnessNode, Namespace: witnessNode}
	// A Lease, because admission policies of scenarios match other objects, and fail for a namespace that is not there.
	_, err = client.CoordinationV1().Leases(nowhere.Namespace).Create(ctx, &coordinationv1.Lease{ObjectMeta: nowhere}, dryRun)
	if off, err = noteProbe(off, namespaceLifecycle, apierrors.IsNotFound, err); err != nil {
		return nil, err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: witnessNode},
		Spec:       corev1.PodSpec{ServiceAccountName: witnessNode, Containers: []corev1.Container{{Name: "pause", Image: "pause"}}},
	}
	_, err = client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, dryRun)
	return noteProbe(off, serviceAccount, apierrors.IsForbidden, err)
}

// noteProbe adds a plugin to those that are off if what it refuses was let through.
func noteProbe(off []string, plugin string, isRefused func(error) bool, err error) ([]string, error) {
	switch {
	case err == nil:
		return append(off, plugin), nil
	case isRefused(err):
		return off, nil
	}
	return nil, errors.Join(fmt.Errorf("the probe of the admission plugin %s", plugin), err)
}
