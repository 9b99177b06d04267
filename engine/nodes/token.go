package nodes

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// Token reads the token that the kubelet projected into a running pod of the agent. config has to be allowed to
// exec into it; nobody but the caller sees the token.
func Token(ctx context.Context, config *rest.Config, namespace, pod string) (string, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	request := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{agentPath, "token"}, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
	if err != nil {
		return "", err
	}
	var out, problem bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &problem}); err != nil {
		return "", fmt.Errorf("reading the token of pod %s/%s: %w %s", namespace, pod, err, strings.TrimSpace(problem.String()))
	}
	token := strings.TrimSpace(out.String())
	if token == "" {
		return "", fmt.Errorf("pod %s/%s has an empty token", namespace, pod)
	}
	return token, nil
}
