package shard

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// planFolder is the folder in which a pod finds what all shards know, as files that together are a compressed Job.
	planFolder = "/etc/authzconf/plan"
	planVolume = "plan"
	// partBytes is how much of it one Secret contains. With its base64 that is less than an object in etcd may have
	// (1.5 MB by default).
	partBytes = 1 << 19
	// maxParts limits what is put into a cluster's etcd for a storm: 128 MiB, which are the tokens of some 200,000
	// agents.
	maxParts = 256
)

// writePlan returns the Secrets that contain a job, each with one part of it. Their names begin alike.
func writePlan(job Job, namespace, name string) (secrets []*corev1.Secret, err error) {
	whole, err := pack(job)
	if err != nil {
		return nil, err
	}
	if n := (len(whole) + partBytes - 1) / partBytes; n > maxParts {
		return nil, fmt.Errorf(
			"what the shards have to know is %d MiB compressed, and %d may be put into the cluster: expected fewer agents, or shards that are processes",
			len(whole)>>20,
			maxParts*partBytes>>20,
		)
	}
	for part := range slices.Chunk(whole, partBytes) {
		file := fmt.Sprintf("part-%03d", len(secrets))
		secrets = append(secrets, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-" + file, Labels: map[string]string{planLabel: name}},
			Immutable:  new(true),
			Data:       map[string][]byte{file: part},
		})
	}
	return secrets, nil
}

// mountPlan mounts the Secrets at planFolder in a pod's first container.
func mountPlan(pod *corev1.PodSpec, secrets []*corev1.Secret) {
	var sources []corev1.VolumeProjection
	for _, s := range secrets {
		sources = append(sources,
			corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: s.Name}}},
		)
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{
		Name:         planVolume,
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources, DefaultMode: new(int32(0o440))}},
	})
	c := &pod.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: planVolume, MountPath: planFolder, ReadOnly: true})
}

// readPlan reads the job in a folder.
func readPlan(folder string) (job Job, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "part-*"))
	if err != nil {
		return job, err
	}
	var whole []byte
	for _, file := range files { // in the order of their names
		part, err := os.ReadFile(file)
		if err != nil {
			return job, err
		}
		whole = append(whole, part...)
	}
	if err := unpack(whole, &job); err != nil {
		return job, fmt.Errorf("what the shard has to know, in %s: %w", folder, err)
	}
	return job, nil
}

// pack writes a value as compressed JSON.
func pack(value any) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if err := json.NewEncoder(w).Encode(value); err != nil {
		return nil, err
	}
	err := w.Close()
	return out.Bytes(), err
}

// unpack reads what pack has written.
func unpack(data []byte, value any) error {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, value)
}
