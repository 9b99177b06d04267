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

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/features"
	clientset "k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/test/e2e/framework"
	e2eauth "k8s.io/kubernetes/test/e2e/framework/auth"
	admissionapi "k8s.io/pod-security-admission/api"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// These tests work with any authorizer: whether a request has to be allowed is asked of the API server by
// SubjectAccessReviews. Where RBAC is enabled, permissions are granted one by one, and the answers have to follow.
var _ = SIGDescribe("Impersonation", func() {
	f := framework.NewDefaultFramework("impersonation")
	f.NamespacePodSecurityLevel = admissionapi.LevelBaseline

	/*
		Release: v1.38
		Testname: Impersonation, resulting user
		Description: A client that is allowed to impersonate anybody sends SelfSubjectReviews with impersonation headers.
		The returned user MUST have the user name, UID, groups and extra fields of the headers, and nothing of the client.
		The group system:authenticated MUST be added, except for the user system:anonymous, who MUST have the group
		system:unauthenticated. A ServiceAccount without groups in the headers MUST have the groups of ServiceAccounts.
	*/
	framework.It("should make the impersonated user the user of the request", func(ctx context.Context) {
		ns := f.Namespace.Name
		name := f.UniqueName
		asServiceAccount := serviceaccount.MakeUsername(ns, "impersonated")
		if e2eauth.IsRBACEnabled(ctx, f.ClientSet.RbacV1()) {
			// Every authenticated user is allowed this.
			grantAccess(
				ctx,
				f,
				userSubject(user.Anonymous),
				authorizationv1.ResourceAttributes{Verb: "create", Group: authenticationv1.GroupName, Resource: "selfsubjectreviews"},
			)
		}
		for _, tc := range []struct {
			target restclient.ImpersonationConfig
			groups []string
		}{
			{restclient.ImpersonationConfig{UserName: name}, []string{user.AllAuthenticated}},
			{restclient.ImpersonationConfig{UserName: name, UID: "1234"}, []string{user.AllAuthenticated}},
			{restclient.ImpersonationConfig{UserName: name, Groups: []string{"developers", "admins"}}, []string{"developers", "admins", user.AllAuthenticated}},
			{restclient.ImpersonationConfig{UserName: name, Groups: []string{user.AllAuthenticated}}, []string{user.AllAuthenticated}},
			{restclient.ImpersonationConfig{UserName: user.Anonymous}, []string{user.AllUnauthenticated}},
			{restclient.ImpersonationConfig{UserName: asServiceAccount}, append(serviceaccount.MakeGroupNames(ns), user.AllAuthenticated)},
			{restclient.ImpersonationConfig{UserName: asServiceAccount, Groups: []string{"developers"}}, []string{"developers", user.AllAuthenticated}},
			{
				restclient.ImpersonationConfig{
					UserName: name, UID: "1234", Groups: []string{"developers"},
					Extra: map[string][]string{"example.com/scopes": {"view", "dev elopment"}, "example.com/reason/Ω": {"on call"}},
				},
				[]string{"developers", user.AllAuthenticated},
			},
		} {
			ginkgo.By(fmt.Sprintf("Creating a SelfSubjectReview as %+v", tc.target))
			config := restclient.CopyConfig(f.ClientConfig())
			config.Impersonate = tc.target
			client, err := clientset.NewForConfig(config)
			framework.ExpectNoError(err, "create a client that impersonates")
			info, err := whoAmI(ctx, client)
			if tc.target.UserName == user.Anonymous && apierrors.IsForbidden(err) && !e2eauth.IsRBACEnabled(ctx, f.ClientSet.RbacV1()) {
				framework.Logf("%s is not allowed to create SelfSubjectReviews: %v", user.Anonymous, err)
				continue
			}
			framework.ExpectNoError(err, "create a SelfSubjectReview")
			gomega.Expect(info.Username).To(gomega.Equal(tc.target.UserName), "user name")
			gomega.Expect(info.UID).To(gomega.Equal(tc.target.UID), "UID")
			gomega.Expect(info.Groups).To(gomega.ConsistOf(tc.groups), "groups")
			expectExtra(info.Extra, tc.target.Extra)
		}
	})

	/*
		Release: v1.38
		Testname: Impersonation, permissions
		Description: A ServiceAccount impersonates a user with a UID, a group and an extra field. The request MUST be
		allowed if and only if SubjectAccessReviews allow the ServiceAccount the verb impersonate on each of the user, the
		UID, the group and the extra field, and allow the impersonated user the request.
	*/
	framework.It("should require the permission to impersonate for each field of the impersonated user", func(ctx context.Context) {
		attempt := newAttempt(ctx, f, legacyMode, restclient.ImpersonationConfig{
			UserName: f.UniqueName, UID: "1234", Groups: []string{"developers"}, Extra: map[string][]string{"example.com/scopes": {"view"}},
		})
		attempt.expectGrantsToBeNeeded(ctx)
	})

	framework.Context(framework.WithFeatureGate(features.ConstrainedImpersonation), func() {
		/*
			Release: v1.38
			Testname: Constrained impersonation, user
			Description: A ServiceAccount impersonates a user with a UID, a group and an extra field. The request MUST be
			allowed if SubjectAccessReviews allow the ServiceAccount the verb impersonate:user-info on each of the user, the
			UID, the group and the extra field, and impersonate-on:user-info:get on the object of the request, and allow the
			impersonated user the request. It MUST be forbidden if one of these is not allowed, unless the ServiceAccount is
			allowed the verb impersonate on all fields. Another user and another object MUST NOT be covered.
		*/
		framework.It("should require the permission to impersonate a user and the permission for the request", func(ctx context.Context) {
			target := restclient.ImpersonationConfig{
				UserName: f.UniqueName,
				UID:      "1234",
				Groups:   []string{"developers"},
				Extra:    map[string][]string{"example.com/scopes": {"view"}},
			}
			attempt := newAttempt(ctx, f, "user-info", target)
			attempt.expectGrantsToBeNeeded(ctx)

			ginkgo.By("Trying a further group, another user and another object")
			more := attempt.as(target)
			more.target.Groups = append(more.target.Groups, "admins")
			more.expectAsReviewed(ctx, false)
			other := attempt.as(restclient.ImpersonationConfig{UserName: target.UserName + "-other"})
			other.expectAsReviewed(ctx, false)
			elsewhere := attempt.on("elsewhere")
			elsewhere.expectAsReviewed(ctx, false)
		})

		/*
			Release: v1.38
			Testname: Constrained impersonation, ServiceAccount
			Description: A ServiceAccount impersonates another one. The request MUST be allowed if SubjectAccessReviews allow
			it the verb impersonate:serviceaccount on the other ServiceAccount, and impersonate-on:serviceaccount:get on the
			object of the request, and allow the other ServiceAccount the request. It MUST be forbidden if one of these is not
			allowed, unless the ServiceAccount is allowed the verb impersonate on the other one.
		*/
		framework.It(
			"should require the permission to impersonate a ServiceAccount and the permission for the request",
			func(ctx context.Context) {
				ns := f.Namespace.Name
				attempt := newAttempt(
					ctx,
					f,
					"serviceaccount",
					restclient.ImpersonationConfig{UserName: serviceaccount.MakeUsername(ns, "impersonated")},
				)
				attempt.expectGrantsToBeNeeded(ctx)

				ginkgo.By("Trying another ServiceAccount")
				other := attempt.as(restclient.ImpersonationConfig{UserName: serviceaccount.MakeUsername(ns, "other")})
				other.expectAsReviewed(ctx, false)
			},
		)

		/*
			Release: v1.38
			Testname: Constrained impersonation, node
			Description: A ServiceAccount impersonates a node. The request MUST be allowed if SubjectAccessReviews allow it the
			verb impersonate:arbitrary-node on the node, and impersonate-on:arbitrary-node:get on the object of the request,
			and allow the node the request. It MUST be forbidden if one of these is not allowed, unless the ServiceAccount is
			allowed the verb impersonate on the user name of the node. The verbs for users MUST NOT be enough.
		*/
		framework.It("should require the permission to impersonate a node and the permission for the request", func(ctx context.Context) {
			attempt := newAttempt(ctx, f, "arbitrary-node", restclient.ImpersonationConfig{UserName: nodeNamePrefix + f.UniqueName})

			ginkgo.By("Granting the verbs for users")
			attempt.grant(
				ctx,
				authorizationv1.ResourceAttributes{
					Verb:     "impersonate:user-info",
					Group:    authenticationv1.GroupName,
					Resource: "users",
					Name:     attempt.target.UserName,
				},
				withVerb(attempt.access, "impersonate-on:user-info:get"),
			)
			attempt.expectGrantsToBeNeeded(ctx)

			ginkgo.By("Trying another node")
			other := attempt.as(restclient.ImpersonationConfig{UserName: attempt.target.UserName + "-other"})
			other.expectAsReviewed(ctx, false)
		})
	})
})

// legacyMode is the mode without constraints, in which the verb is impersonate. It applies to everybody.
const legacyMode = "legacy"

// attempt is a request of a ServiceAccount that impersonates: it gets a ConfigMap.
type attempt struct {
	*impersonator
	// mode is the mode of impersonation that applies to the target, whose permissions are granted.
	mode   string
	target restclient.ImpersonationConfig
	access authorizationv1.ResourceAttributes
}

// newAttempt creates the ServiceAccount and the ConfigMap, and allows the target to get it.
func newAttempt(ctx context.Context, f *framework.Framework, mode string, target restclient.ImpersonationConfig) *attempt {
	ginkgo.GinkgoHelper()
	ns := f.Namespace.Name
	a := &attempt{
		impersonator: newImpersonator(ctx, f, createServiceAccount(ctx, f, "impersonator"), nil),
		mode:         mode,
		target:       target,
		access: authorizationv1.ResourceAttributes{
			Verb:      "get",
			Version:   "v1",
			Resource:  "configmaps",
			Namespace: ns,
			Name:      "settings",
		},
	}
	for _, name := range []string{a.access.Name, "elsewhere"} {
		_, err := f.ClientSet.CoreV1().
			ConfigMaps(ns).
			Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		framework.ExpectNoError(err, "create config map %s", name)
	}
	if e2eauth.IsRBACEnabled(ctx, f.ClientSet.RbacV1()) {
		grantAccess(
			ctx,
			f,
			userSubject(target.UserName),
			withVerb(authorizationv1.ResourceAttributes{Resource: "configmaps", Namespace: ns}, "get"),
		)
	}
	return a
}

// as returns the same attempt with another target.
func (a *attempt) as(target restclient.ImpersonationConfig) *attempt {
	other := *a
	other.target = target
	return &other
}

// on returns the same attempt for another ConfigMap.
func (a *attempt) on(name string) *attempt {
	other := *a
	other.access.Name = name
	return &other
}

// grant allows the ServiceAccount each access, where RBAC is enabled.
func (a *attempt) grant(ctx context.Context, accesses ...authorizationv1.ResourceAttributes) {
	ginkgo.GinkgoHelper()
	if e2eauth.IsRBACEnabled(ctx, a.f.ClientSet.RbacV1()) {
		a.impersonator.grant(ctx, accesses...)
	}
}

// expectGrantsToBeNeeded grants the permissions of the mode one by one, that of the request first. The user with one field
// alone is allowed as soon as that field is granted, and the target when all are.
func (a *attempt) expectGrantsToBeNeeded(ctx context.Context) {
	ginkgo.GinkgoHelper()
	a.expectAsReviewed(ctx, false)
	if a.mode != legacyMode {
		a.grant(ctx, a.actionAccess())
	}
	fields := a.fields()
	for i, field := range fields {
		ginkgo.By(fmt.Sprintf("Granting %s %s", field.access.Resource, field.access.Name))
		alone := a.as(field.alone)
		alone.expectAsReviewed(ctx, false)
		a.grant(ctx, a.identityAccess(field))
		alone.expectAsReviewed(ctx, true)
		a.expectAsReviewed(ctx, i == len(fields)-1)
	}
}

// impersonatedField is a field of a target.
type impersonatedField struct {
	// access is the field as a resource of the group authentication.k8s.io, without a verb.
	access authorizationv1.ResourceAttributes
	// alone is the target with its user name, this field, and no other.
	alone restclient.ImpersonationConfig
}

// fields are the fields of the target, the user name first.
func (a *attempt) fields() []impersonatedField {
	name := a.target.UserName
	of := func(resource, subresource, value string, alone restclient.ImpersonationConfig) impersonatedField {
		alone.UserName = name
		return impersonatedField{
			authorizationv1.ResourceAttributes{
				Group:       authenticationv1.GroupName,
				Resource:    resource,
				Subresource: subresource,
				Name:        value,
			},
			alone,
		}
	}
	first := of("users", "", name, restclient.ImpersonationConfig{})
	if namespace, account, err := serviceaccount.SplitUsername(name); err == nil {
		first = of("serviceaccounts", "", account, restclient.ImpersonationConfig{})
		first.access.Namespace = namespace
	}
	fields := []impersonatedField{first}
	if a.target.UID != "" {
		fields = append(fields, of("uids", "", a.target.UID, restclient.ImpersonationConfig{UID: a.target.UID}))
	}
	for _, group := range a.target.Groups {
		fields = append(fields, of("groups", "", group, restclient.ImpersonationConfig{Groups: []string{group}}))
	}
	for key, values := range a.target.Extra {
		for _, value := range values {
			fields = append(fields, of("userextras", key, value, restclient.ImpersonationConfig{Extra: map[string][]string{key: {value}}}))
		}
	}
	return fields
}

// targetGroups are the groups that the impersonated user has.
func (a *attempt) targetGroups() []string {
	groups := append([]string{user.AllAuthenticated}, a.target.Groups...)
	switch a.mode {
	case "serviceaccount":
		if namespace, _, err := serviceaccount.SplitUsername(a.target.UserName); err == nil {
			groups = append(groups, serviceaccount.MakeGroupNames(namespace)...)
		}
	case "arbitrary-node":
		groups = append(groups, nodesGroup)
	}
	return groups
}

// identityAccess is what the verb of the mode has to be allowed on for a field.
func (a *attempt) identityAccess(field impersonatedField) authorizationv1.ResourceAttributes {
	access := field.access
	switch {
	case a.mode != legacyMode:
		if a.mode == "arbitrary-node" {
			access.Resource, access.Name = "nodes", access.Name[len(nodeNamePrefix):]
		}
		access.Verb = "impersonate:" + a.mode
	case access.Resource == "uids", access.Resource == "userextras":
		access.Verb = "impersonate"
	default: // users, groups and ServiceAccounts are those of the core group
		access.Verb, access.Group = "impersonate", v1.GroupName
	}
	return access
}

// actionAccess is what has to be allowed for the request of the attempt, besides the fields of the target.
func (a *attempt) actionAccess() authorizationv1.ResourceAttributes {
	return withVerb(a.access, "impersonate-on:"+a.mode+":"+a.access.Verb)
}

// neededAccesses are all that the requestor has to be allowed in a mode.
func (a *attempt) neededAccesses(mode string) []authorizationv1.ResourceAttributes {
	inMode := *a
	inMode.mode = mode
	var accesses []authorizationv1.ResourceAttributes
	if mode != legacyMode {
		accesses = append(accesses, inMode.actionAccess())
	}
	for _, field := range a.fields() {
		accesses = append(accesses, inMode.identityAccess(field))
	}
	return accesses
}

// withVerb returns an access with another verb.
func withVerb(access authorizationv1.ResourceAttributes, verb string) authorizationv1.ResourceAttributes {
	access.Verb = verb
	return access
}

// expectAsReviewed expects the request to be allowed if SubjectAccessReviews say so, and to be forbidden otherwise. Where
// RBAC is enabled, the reviews themselves have to be as the grants are.
func (a *attempt) expectAsReviewed(ctx context.Context, granted bool) {
	ginkgo.GinkgoHelper()
	groups := append(serviceaccount.MakeGroupNames(a.f.Namespace.Name), user.AllAuthenticated)
	reviewed := a.isAllowed(ctx, a.username, groups, a.neededAccesses(legacyMode))
	if !reviewed && a.mode != legacyMode {
		reviewed = a.isAllowed(ctx, a.username, groups, a.neededAccesses(a.mode))
	}
	if reviewed {
		reviewed = a.isAllowed(ctx, a.target.UserName, a.targetGroups(), []authorizationv1.ResourceAttributes{a.access})
	}
	if e2eauth.IsRBACEnabled(ctx, a.f.ClientSet.RbacV1()) {
		gomega.Expect(reviewed).To(gomega.Equal(granted), "SubjectAccessReviews for %s as %s", a.username, a.target.UserName)
	}
	client := a.clientFor(a.target)
	get := func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps(a.access.Namespace).Get(ctx, a.access.Name, metav1.GetOptions{})
		return err
	}
	if reviewed {
		expectAllowed(ctx, get, "%s as %s gets a config map, as SubjectAccessReviews allow", a.username, a.target.UserName)
	} else {
		gomega.Expect(get(ctx)).
			To(gomega.Satisfy(apierrors.IsForbidden), "%s as %s gets a config map, which SubjectAccessReviews do not allow", a.username, a.target.UserName)
	}
}

// isAllowed reports whether SubjectAccessReviews allow a user all accesses.
func (a *attempt) isAllowed(ctx context.Context, username string, groups []string, accesses []authorizationv1.ResourceAttributes) bool {
	ginkgo.GinkgoHelper()
	for _, access := range accesses {
		review := &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: username, Groups: groups, ResourceAttributes: &access},
		}
		review, err := a.f.ClientSet.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		framework.ExpectNoError(err, "create a SubjectAccessReview")
		if !review.Status.Allowed {
			return false
		}
	}
	return true
}

// expectExtra expects the extra fields of a user to be those that were impersonated. Their order within a key does not count.
func expectExtra(got map[string]authenticationv1.ExtraValue, want map[string][]string) {
	ginkgo.GinkgoHelper()
	gomega.Expect(got).To(gomega.HaveLen(len(want)), "extra fields")
	for key, values := range want {
		gomega.Expect(got).To(gomega.HaveKeyWithValue(key, gomega.ConsistOf(values)), "extra field %s", key)
	}
}
