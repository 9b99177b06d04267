package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/certify"
)

// plugin is the part of a Sonobuoy plugin that ours uses (github.com/vmware-tanzu/sonobuoy/pkg/plugin/manifest,
// Manifest).
type plugin struct {
	Config struct {
		Driver       string `json:"driver"`
		Name         string `json:"plugin-name"`
		Description  string `json:"description"`
		ResultFormat string `json:"result-format"`
	} `json:"sonobuoy-config"`
	ExtraVolumes []corev1.Volume  `json:"extra-volumes"`
	Spec         corev1.Container `json:"spec"`
}

// TestCertifyManifests decodes the manifests strictly, and parses their arguments with the command line.
func TestCertifyManifests(t *testing.T) {
	read := func(file string) []string {
		raw, err := os.ReadFile("../../ci/certify/" + file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(string(raw), "---\n")
	}
	decode := func(doc string, into any) {
		if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
			t.Fatal(err)
		}
	}
	job := read("job.yaml")
	var claim corev1.PersistentVolumeClaim
	decode(job[0], &claim)
	for _, manifest := range []string{job[1], read("safe-job.yaml")[0]} {
		var asks batchv1.Job
		decode(manifest, &asks)
		pod := asks.Spec.Template.Spec
		if *asks.Spec.BackoffLimit != 0 || pod.RestartPolicy != corev1.RestartPolicyNever {
			t.Errorf("the job %s is tried again: a wrong answer that becomes right would be forgotten", asks.Name)
		}
		runnable(t, pod.Containers[0], pod.Volumes)
	}

	var p plugin
	decode(read("sonobuoy-plugin.yaml")[0], &p)
	if p.Config.ResultFormat != "junit" || p.Config.Driver != "Job" || p.Spec.Name != "plugin" {
		t.Errorf("%+v", p.Config)
	}
	// Sonobuoy mounts the volume results itself.
	runnable(t, p.Spec, append(p.ExtraVolumes, corev1.Volume{Name: "results"}))
}

// runnable checks the arguments, and that the files which they name are mounted.
func runnable(t *testing.T, c corev1.Container, volumes []corev1.Volume) {
	t.Helper()
	if !slices.Equal(c.Command, []string{"/authzconf"}) {
		t.Fatalf("it runs %v", c.Command)
	}
	var paths []string
	args := c.Args
	if args[0] == "sonobuoy" {
		command := newSonobuoy()
		if err := command.ParseFlags(args[1:]); err != nil {
			t.Fatal(err)
		}
		paths, args = append(paths, command.Flag("results").Value.String()), command.Flags().Args()
	}
	if len(args) == 0 || args[0] != "certify" {
		t.Fatalf("it runs %v", args)
	}
	command := newCertify()
	if args[1] == "safe" {
		args, command = args[1:], productCommand(certify.SafeProduct)
	}
	if err := command.ParseFlags(args[1:]); err != nil {
		t.Error(err)
	}
	paths = append(paths, command.Flag("authorizer-kubeconfig").Value.String())
	if dir := command.Flag("report-dir").Value.String(); dir != "" {
		paths = append(paths, dir)
	}
	if len(paths) != 2 {
		t.Errorf("the report is written nowhere: %v", c.Args)
	}
	for _, path := range paths {
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(path+"/", m.MountPath+"/") }) {
			t.Errorf("%s is not mounted", path)
		}
	}
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("there is no volume %s", m.Name)
		}
	}
}
