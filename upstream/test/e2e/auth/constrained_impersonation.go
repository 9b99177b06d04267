/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package auth

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/features"
	clientset "k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/test/e2e/framework"
	e2eauth "k8s.io/kubernetes/test/e2e/framework/auth"
	e2edeployment "k8s.io/kubernetes/test/e2e/framework/deployment"
	e2eskipper "k8s.io/kubernetes/test/e2e/framework/skipper"
	imageutils "k8s.io/kubernetes/test/utils/image"
	admissionapi "k8s.io/pod-security-admission/api"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// grantTimeout is how long a grant may take until every API server of the cluster knows of it. One has been waited for.
const grantTimeout = 10 * time.Second

var _ = SIGDescribe("ConstrainedImpersonation", framework.WithFeatureGate(features.ConstrainedImpersonation), func() {
	f := framework.NewDefaultFramework("constrained-impersonation")
	f.NamespacePodSecurityLevel = admissionapi.LevelBaseline

	ginkgo.BeforeEach(func(ctx context.Context) {
		if !e2eauth.IsRBACEnabled(ctx, f.ClientSet.RbacV1()) {
			e2eskipper.Skipf("the permissions to impersonate are granted by RBAC, which is not enabled")
		}
	})

	ginkgo.It("should not allow a request for a subresource until both permissions to impersonate are granted", func(ctx context.Context) {
		ns := f.Namespace.Name
		target := f.UniqueName
		client := f.ClientSet

		ginkgo.By("Creating a Deployment without replicas, whose scale the impersonated user can read and update")
		deployment, err := client.AppsV1().Deployments(ns).Create(ctx,
			e2edeployment.NewDeployment("scaled", 0, map[string]string{"app": "scaled"}, "pause", imageutils.GetPauseImageName(), appsv1.RollingUpdateDeploymentStrategyType),
			metav1.CreateOptions{})
		framework.ExpectNoError(err, "create the deployment")
		scale := authorizationv1.ResourceAttributes{Namespace: ns, Group: "apps", Resource: "deployments", Subresource: "scale"}
		for _, verb := range []string{"get", "update"} {
			scale.Verb = verb
			grantAccess(ctx, f, userSubject(target), scale)
		}

		requestor := newImpersonator(ctx, f, createServiceAccount(ctx, f, "impersonator"), nil)
		deployments := requestor.clientFor(restclient.ImpersonationConfig{UserName: target}).AppsV1().Deployments(ns)

		ginkgo.By("Trying without any permission")
		_, err = deployments.GetScale(ctx, deployment.Name, metav1.GetOptions{})
		expectForbiddenTo(err, requestor.username)

		ginkgo.By("Trying with the permission to act on the Deployment, but not on its scale")
		requestor.grant(
			ctx,
			authorizationv1.ResourceAttributes{
				Verb:     "impersonate:user-info",
				Group:    authenticationv1.GroupName,
				Resource: "users",
				Name:     target,
			},
			authorizationv1.ResourceAttributes{Verb: "impersonate-on:user-info:get", Namespace: ns, Group: "apps", Resource: "deployments"},
		)
		_, err = deployments.GetScale(ctx, deployment.Name, metav1.GetOptions{})
		expectForbiddenTo(err, requestor.username)

		ginkgo.By("Trying with both permissions")
		scale.Verb = "impersonate-on:user-info:get"
		requestor.grant(ctx, scale)
		expectAllowed(ctx, func(ctx context.Context) error {
			_, err := deployments.GetScale(ctx, deployment.Name, metav1.GetOptions{})
			return err
		}, "get the scale of the deployment as %s", target)

		ginkgo.By("Trying another verb, which the impersonated user is allowed")
		full, err := client.AppsV1().Deployments(ns).GetScale(ctx, deployment.Name, metav1.GetOptions{})
		framework.ExpectNoError(err, "get the scale of the deployment")
		_, err = deployments.UpdateScale(ctx, deployment.Name, full, metav1.UpdateOptions{})
		expectForbiddenTo(err, requestor.username)

		ginkgo.By("Trying the Deployment itself, which the impersonated user is not allowed")
		_, err = deployments.Get(ctx, deployment.Name, metav1.GetOptions{})
		expectForbiddenTo(err, target)

		ginkgo.By("Trying as another user")
		other := requestor.clientFor(restclient.ImpersonationConfig{UserName: target + "-other"}).AppsV1().Deployments(ns)
		_, err = other.GetScale(ctx, deployment.Name, metav1.GetOptions{})
		expectForbiddenTo(err, requestor.username)

		ginkgo.By("Trying without impersonation: the permissions are of no use then")
		_, err = requestor.clientFor(restclient.ImpersonationConfig{}).
			AppsV1().
			Deployments(ns).
			GetScale(ctx, deployment.Name, metav1.GetOptions{})
		expectForbiddenTo(err, requestor.username)
	})

	ginkgo.It(
		"should allow a ServiceAccount with the permissions to impersonate the node of its pod to list pods as that node",
		func(ctx context.Context) {
			ns := f.Namespace.Name
			nodeName := nameOfSomeNode(ctx, f)
			asNode := restclient.ImpersonationConfig{UserName: nodeNamePrefix + nodeName}

			ginkgo.By("Creating a pod of a ServiceAccount on node " + nodeName)
			sa := createServiceAccount(ctx, f, "node-agent")
			pod, err := f.ClientSet.CoreV1().Pods(ns).Create(ctx, &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "node-agent"},
				Spec: v1.PodSpec{
					NodeName:           nodeName,
					ServiceAccountName: sa.Name,
					Containers:         []v1.Container{{Name: "pause", Image: imageutils.GetPauseImageName()}},
				},
			}, metav1.CreateOptions{})
			framework.ExpectNoError(err, "create a pod on node %s", nodeName)
			agent := newImpersonator(
				ctx,
				f,
				sa,
				&authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
			)
			client := agent.clientFor(asNode)

			// On clusters with the node authorizer the node is allowed this without a grant.
			pods := authorizationv1.ResourceAttributes{Namespace: ns, Verb: "list", Resource: "pods"}
			grantAccess(ctx, f, userSubject(asNode.UserName), pods)
			listOfNode := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", nodeName).String()}

			ginkgo.By("Listing pods without any permission")
			_, err = client.CoreV1().Pods(ns).List(ctx, listOfNode)
			expectForbiddenTo(err, agent.username)

			ginkgo.By("Listing pods with the permission to impersonate the node, but not to list pods as it")
			agent.grant(
				ctx,
				authorizationv1.ResourceAttributes{
					Verb:     "impersonate:associated-node",
					Group:    authenticationv1.GroupName,
					Resource: "nodes",
				},
			)
			_, err = client.CoreV1().Pods(ns).List(ctx, listOfNode)
			expectForbiddenTo(err, agent.username)

			ginkgo.By("Listing pods with both permissions")
			pods.Verb = "impersonate-on:associated-node:list"
			agent.grant(ctx, pods)
			var list *v1.PodList
			expectAllowed(ctx, func(ctx context.Context) (err error) {
				list, err = client.CoreV1().Pods(ns).List(ctx, listOfNode)
				return err
			}, "list pods as node %s", nodeName)
			gomega.Expect(list.Items).To(gomega.ConsistOf(gomega.HaveField("Name", pod.Name)), "pods of node %s in the namespace", nodeName)

			ginkgo.By("Asking the API server who lists them")
			agent.grant(
				ctx,
				authorizationv1.ResourceAttributes{
					Verb:     "impersonate-on:associated-node:create",
					Group:    authenticationv1.GroupName,
					Resource: "selfsubjectreviews",
				},
			)
			var info authenticationv1.UserInfo
			expectAllowed(ctx, func(ctx context.Context) (err error) {
				info, err = whoAmI(ctx, client)
				return err
			}, "create a SelfSubjectReview as node %s", nodeName)
			gomega.Expect(info.Username).To(gomega.Equal(asNode.UserName), "user name of the node")
			gomega.Expect(info.UID).To(gomega.BeEmpty(), "UID of the node")
			gomega.Expect(info.Groups).To(gomega.ConsistOf(nodesGroup, user.AllAuthenticated), "groups of the node")
			gomega.Expect(info.Extra).To(gomega.BeEmpty(), "extra fields of the node")

			ginkgo.By("Watching pods, which needs a permission of its own")
			_, err = client.CoreV1().Pods(ns).Watch(ctx, listOfNode)
			expectForbiddenTo(err, agent.username)

			ginkgo.By("Impersonating another node, and with a token that is not bound to a pod")
			otherNode := agent.clientFor(restclient.ImpersonationConfig{UserName: asNode.UserName + "-other"})
			_, err = otherNode.CoreV1().Pods(ns).List(ctx, listOfNode)
			expectForbiddenTo(err, agent.username)
			unbound := newImpersonator(ctx, f, sa, nil).clientFor(asNode)
			_, err = unbound.CoreV1().Pods(ns).List(ctx, listOfNode)
			expectForbiddenTo(err, agent.username)
		},
	)
})

// impersonator is a ServiceAccount that acts as other users.
type impersonator struct {
	f        *framework.Framework
	username string
	config   *restclient.Config
}

// createServiceAccount creates a ServiceAccount in the test's namespace.
func createServiceAccount(ctx context.Context, f *framework.Framework, name string) *v1.ServiceAccount {
	ginkgo.GinkgoHelper()
	sa, err := f.ClientSet.CoreV1().
		ServiceAccounts(f.Namespace.Name).
		Create(ctx, &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	framework.ExpectNoError(err, "create service account %s", name)
	return sa
}

// newImpersonator requests a token for a ServiceAccount. The token is bound to an object, unless ref is nil.
func newImpersonator(ctx context.Context, f *framework.Framework, sa *v1.ServiceAccount, ref *authenticationv1.BoundObjectReference) *impersonator {
	ginkgo.GinkgoHelper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: ref}}
	request, err := f.ClientSet.CoreV1().ServiceAccounts(sa.Namespace).CreateToken(ctx, sa.Name, request, metav1.CreateOptions{})
	framework.ExpectNoError(err, "request a token for service account %s", sa.Name)
	config := restclient.AnonymousClientConfig(f.ClientConfig())
	config.BearerToken = request.Status.Token
	return &impersonator{f: f, username: serviceaccount.MakeUsername(sa.Namespace, sa.Name), config: config}
}

// clientFor returns a client that impersonates a user, or nobody if the config is empty.
func (i *impersonator) clientFor(target restclient.ImpersonationConfig) clientset.Interface {
	ginkgo.GinkgoHelper()
	config := restclient.CopyConfig(i.config)
	config.Impersonate = target
	client, err := clientset.NewForConfig(config)
	framework.ExpectNoError(err, "create a client that impersonates %s", target.UserName)
	return client
}

// grant allows the impersonator each access and waits until the authorizer knows.
func (i *impersonator) grant(ctx context.Context, accesses ...authorizationv1.ResourceAttributes) {
	ginkgo.GinkgoHelper()
	for _, access := range accesses {
		grantAccess(ctx, i.f, userSubject(i.username), access)
	}
}

// userSubject is the subject of a binding to a user. A ServiceAccount can be bound by its user name, too.
func userSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

// grantAccess allows a user an access by a role of its own and waits until the authorizer knows. The access is granted in
// its namespace, or in the whole cluster if it has none. The role and its binding are deleted with the namespace, or when
// the test ends.
func grantAccess(ctx context.Context, f *framework.Framework, subject rbacv1.Subject, access authorizationv1.ResourceAttributes) {
	ginkgo.GinkgoHelper()
	rule := rbacv1.PolicyRule{Verbs: []string{access.Verb}, APIGroups: []string{access.Group}, Resources: []string{access.Resource}}
	if access.Subresource != "" {
		rule.Resources = []string{access.Resource + "/" + access.Subresource}
	}
	if access.Name != "" {
		rule.ResourceNames = []string{access.Name}
	}
	meta := metav1.ObjectMeta{GenerateName: f.Namespace.Name + "-"}
	rules, subjects := []rbacv1.PolicyRule{rule}, []rbacv1.Subject{subject}
	if access.Namespace == "" {
		roles, bindings := f.ClientSet.RbacV1().ClusterRoles(), f.ClientSet.RbacV1().ClusterRoleBindings()
		role, err := roles.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
		framework.ExpectNoError(err, "create a cluster role for %v", access)
		ginkgo.DeferCleanup(framework.IgnoreNotFound(roles.Delete), role.Name, metav1.DeleteOptions{})
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}
		binding, err := bindings.Create(
			ctx,
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects},
			metav1.CreateOptions{},
		)
		framework.ExpectNoError(err, "bind a cluster role for %v", access)
		ginkgo.DeferCleanup(framework.IgnoreNotFound(bindings.Delete), binding.Name, metav1.DeleteOptions{})
	} else {
		role, err := f.ClientSet.RbacV1().
			Roles(access.Namespace).
			Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
		framework.ExpectNoError(err, "create a role for %v", access)
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}
		_, err = f.ClientSet.RbacV1().
			RoleBindings(access.Namespace).
			Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
		framework.ExpectNoError(err, "bind a role for %v", access)
	}
	framework.ExpectNoError(
		e2eauth.WaitForAuthzUpdate(ctx, f.ClientSet.AuthorizationV1(), subject.Name, nil, &access, true),
		"wait until %s is allowed %v",
		subject.Name,
		access,
	)
}

// expectAllowed expects a request to be allowed, soon after it was granted and from then on: the client keeps its connection
// and thus its API server, which can answer from a cache.
func expectAllowed(ctx context.Context, send func(ctx context.Context) error, explain ...interface{}) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(ctx, send).WithTimeout(grantTimeout).Should(gomega.Succeed(), explain...)
	for range 3 {
		gomega.Expect(send(ctx)).To(gomega.Succeed(), explain...)
	}
}

// expectForbiddenTo expects a request to be refused because a user lacks a permission: the impersonator if it is not
// allowed to impersonate, and otherwise the impersonated user.
func expectForbiddenTo(err error, username string) {
	ginkgo.GinkgoHelper()
	gomega.Expect(err).To(gomega.Satisfy(apierrors.IsForbidden), "request that %s lacks a permission for", username)
	gomega.Expect(err).To(gomega.MatchError(gomega.ContainSubstring(fmt.Sprintf("User %q cannot", username))))
}

// whoAmI returns the user that the API server takes a client for.
func whoAmI(ctx context.Context, client clientset.Interface) (authenticationv1.UserInfo, error) {
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

// nameOfSomeNode returns the name of a node of the cluster. It does not have to be ready, because nothing runs on it.
func nameOfSomeNode(ctx context.Context, f *framework.Framework) string {
	ginkgo.GinkgoHelper()
	nodes, err := f.ClientSet.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	framework.ExpectNoError(err, "list nodes")
	gomega.Expect(nodes.Items).NotTo(gomega.BeEmpty(), "nodes of the cluster")
	return nodes.Items[0].Name
}
