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

package e2eauth

import (
	"fmt"
	"time"

	"github.com/onsi/gomega"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
)

const (
	// impersonatedUser is allowed to get ConfigMaps.
	impersonatedUser = "impersonated"
	// grantTimeout is how long RBAC may take to know of a grant. A restarted API server knows all of them when it is ready.
	grantTimeout = 30 * time.Second
)

func constrainedImpersonationGateCycle(tCtx ktesting.TContext) gateOffFunc {
	test := newConstrainedImpersonationTest(tCtx)
	test.addImpersonators(tCtx, "gate-on")
	test.verify(tCtx, true)
	return func(tCtx ktesting.TContext) gateOnAgainFunc {
		test.addImpersonators(tCtx, "gate-off")
		test.verify(tCtx, false)
		return func(tCtx ktesting.TContext) {
			test.addImpersonators(tCtx, "gate-on-again")
			test.verify(tCtx, true)
		}
	}
}

// constrainedImpersonationUpgradeDowngrade is for a previous release with the feature gate on or off.
func constrainedImpersonationUpgradeDowngrade(onInPrevious bool) initialTestFunc {
	return func(tCtx ktesting.TContext) upgradedTestFunc {
		test := newConstrainedImpersonationTest(tCtx)
		test.addImpersonators(tCtx, "previous")
		test.verify(tCtx, onInPrevious)
		return func(tCtx ktesting.TContext) downgradedTestFunc {
			test.addImpersonators(tCtx, "upgraded")
			test.verify(tCtx, true)
			return func(tCtx ktesting.TContext) upgradedAgainTestFunc {
				test.addImpersonators(tCtx, "downgraded")
				test.verify(tCtx, onInPrevious)
				return func(tCtx ktesting.TContext) {
					test.addImpersonators(tCtx, "upgraded-again")
					test.verify(tCtx, true)
				}
			}
		}
	}
}

// constrainedImpersonationTest has what was created in the phases so far: tokens and grants have to mean the same in all
// later phases, however the API server is replaced in between.
type constrainedImpersonationTest struct {
	namespace string
	configMap string
	// constrained have the permissions of constrained impersonation, legacy the verb impersonate, and incomplete lacks the
	// permission to impersonate the user.
	constrained, legacy, incomplete []*restclient.Config
	roles                           []*rbacv1.ClusterRole
}

// newConstrainedImpersonationTest creates a namespace with a ConfigMap, and allows the impersonated user to get it.
func newConstrainedImpersonationTest(tCtx ktesting.TContext) *constrainedImpersonationTest {
	tCtx.Helper()
	ns, err := tCtx.Client().
		CoreV1().
		Namespaces().
		Create(tCtx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "constrained-impersonation-"}}, metav1.CreateOptions{})
	tCtx.ExpectNoError(err, "create namespace")
	test := &constrainedImpersonationTest{namespace: ns.Name, configMap: "settings"}
	_, err = tCtx.Client().
		CoreV1().
		ConfigMaps(ns.Name).
		Create(tCtx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: test.configMap}}, metav1.CreateOptions{})
	tCtx.ExpectNoError(err, "create config map")
	test.grant(
		tCtx,
		"impersonated",
		impersonatedUser,
		rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
	)
	return test
}

// addImpersonators creates three ServiceAccounts, which have their tokens and grants from this phase.
func (test *constrainedImpersonationTest) addImpersonators(tCtx ktesting.TContext, phase string) {
	tCtx.Helper()
	identity := rbacv1.PolicyRule{
		Verbs:         []string{"impersonate:user-info"},
		APIGroups:     []string{authenticationv1.GroupName},
		Resources:     []string{"users"},
		ResourceNames: []string{impersonatedUser},
	}
	action := rbacv1.PolicyRule{Verbs: []string{"impersonate-on:user-info:get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}
	legacy := rbacv1.PolicyRule{
		Verbs:         []string{"impersonate"},
		APIGroups:     []string{""},
		Resources:     []string{"users"},
		ResourceNames: []string{impersonatedUser},
	}
	test.incomplete = append(test.incomplete, test.newImpersonator(tCtx, "incomplete-"+phase, action))
	test.constrained = append(test.constrained, test.newImpersonator(tCtx, "constrained-"+phase, identity, action))
	test.legacy = append(test.legacy, test.newImpersonator(tCtx, "legacy-"+phase, legacy))
}

// newImpersonator creates a ServiceAccount with grants and returns a config with its token, which impersonates the user.
func (test *constrainedImpersonationTest) newImpersonator(tCtx ktesting.TContext, name string, rules ...rbacv1.PolicyRule) *restclient.Config {
	tCtx.Helper()
	accounts := tCtx.Client().CoreV1().ServiceAccounts(test.namespace)
	_, err := accounts.Create(tCtx, &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	tCtx.ExpectNoError(err, "create service account %s", name)
	token, err := accounts.CreateToken(tCtx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	tCtx.ExpectNoError(err, "request a token of service account %s", name)
	test.grant(tCtx, name, serviceaccount.MakeUsername(test.namespace, name), rules...)

	config := restclient.AnonymousClientConfig(tCtx.RESTConfig())
	config.BearerToken = token.Status.Token
	config.UserAgent = name
	config.Impersonate = restclient.ImpersonationConfig{UserName: impersonatedUser}
	return config
}

// grant binds a user to a new cluster role.
func (test *constrainedImpersonationTest) grant(tCtx ktesting.TContext, name, username string, rules ...rbacv1.PolicyRule) {
	tCtx.Helper()
	meta := metav1.ObjectMeta{Name: test.namespace + "-" + name}
	role, err := tCtx.Client().
		RbacV1().
		ClusterRoles().
		Create(tCtx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	tCtx.ExpectNoError(err, "create cluster role %s", meta.Name)
	_, err = tCtx.Client().RbacV1().ClusterRoleBindings().Create(tCtx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: username}},
	}, metav1.CreateOptions{})
	tCtx.ExpectNoError(err, "create cluster role binding %s", meta.Name)
	test.roles = append(test.roles, role)
}

// verify expects the roles to be stored as they were created, the verb impersonate to be honored always, and the permissions
// of constrained impersonation only if the feature gate is on.
func (test *constrainedImpersonationTest) verify(tCtx ktesting.TContext, gateOn bool) {
	tCtx.Helper()
	for _, created := range test.roles {
		stored, err := tCtx.Client().RbacV1().ClusterRoles().Get(tCtx, created.Name, metav1.GetOptions{})
		tCtx.ExpectNoError(err, "get cluster role %s", created.Name)
		tCtx.Expect(stored).To(gomega.Equal(created), "cluster role %s, which nobody has updated", created.Name)
	}
	// An API server that has just been told of a grant can only err by refusing. The grants of legacy are the last ones: when
	// they are known, the others are, too, and what is refused must be refused at once.
	for _, config := range test.legacy {
		test.expectAllowed(tCtx, config)
	}
	for _, config := range test.constrained {
		if gateOn {
			test.expectAllowed(tCtx, config)
		} else {
			test.expectForbidden(tCtx, config)
		}
	}
	for _, config := range test.incomplete {
		test.expectForbidden(tCtx, config)
	}
}

// expectAllowed expects an impersonated request to be allowed, soon.
func (test *constrainedImpersonationTest) expectAllowed(tCtx ktesting.TContext, config *restclient.Config) {
	tCtx.Helper()
	tCtx.WithStep(fmt.Sprintf("get a config map with the token of %s", config.UserAgent)).Eventually(func(tCtx ktesting.TContext) error {
		return test.getConfigMap(tCtx, config)
	}).WithTimeout(grantTimeout).Should(gomega.Succeed())
}

// expectForbidden expects an impersonated request to be forbidden, now.
func (test *constrainedImpersonationTest) expectForbidden(tCtx ktesting.TContext, config *restclient.Config) {
	tCtx.Helper()
	tCtx.Expect(test.getConfigMap(tCtx, config)).
		To(gomega.Satisfy(apierrors.IsForbidden), "get a config map with the token of %s", config.UserAgent)
}

// getConfigMap sends the request of an impersonator.
func (test *constrainedImpersonationTest) getConfigMap(tCtx ktesting.TContext, config *restclient.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().ConfigMaps(test.namespace).Get(tCtx, test.configMap, metav1.GetOptions{})
	return err
}
