package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	apiv1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// name is that of the namespace, of the ServiceAccount, and of the role that it has.
const name = "count-checks"

func nodeName(i int) string { return fmt.Sprintf("%s-%d", name, i) }

// createAgents makes a ServiceAccount that may impersonate the nodes of its pods to list pods, and so many nodes with a pod each. It
// returns the token of each pod.
func createAgents(ctx context.Context, admin *rest.Config, count int) ([]string, error) {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	if err := createAccount(ctx, client); err != nil {
		return nil, err
	}
	tokens := make([]string, count)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(20)
	for i := range count {
		group.Go(func() (err error) {
			tokens[i], err = createAgent(ctx, client, nodeName(i))
			return err
		})
	}
	return tokens, group.Wait()
}

// createAccount makes the ServiceAccount with its permissions, which are those of the reference page's example of a node agent.
func createAccount(ctx context.Context, client kubernetes.Interface) error {
	meta := metav1.ObjectMeta{Name: name}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"impersonate:associated-node"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"nodes"}},
		{Verbs: []string{"impersonate-on:associated-node:list"}, APIGroups: []string{""}, Resources: []string{"pods"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: name, Name: name}},
	}
	if _, err := client.CoreV1().Namespaces().Create(ctx, &apiv1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("%w (expected a control plane on which this has not run before)", err)
	}
	account := &apiv1.ServiceAccount{ObjectMeta: meta}
	if _, err := client.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	return err
}

// createAgent makes a node and a pod on it, and returns a token that is bound to the pod.
func createAgent(ctx context.Context, client kubernetes.Interface, node string) (token string, err error) {
	_, err = client.CoreV1().
		Nodes().
		Create(ctx, &apiv1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	pod := &apiv1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec:       apiv1.PodSpec{NodeName: node, ServiceAccountName: name, Containers: []apiv1.Container{{Name: "agent", Image: "none"}}},
	}
	pod, err = client.CoreV1().Pods(name).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}
	answer, err := client.CoreV1().ServiceAccounts(name).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}
