package wire

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// kinds are the kinds of the objects in the vectors, by resource and subresource. An API server sends the kind of every
// object. The vectors leave it out, because none of their policies uses it.
var kinds = map[string]string{
	"certificatesigningrequests": "CertificateSigningRequest",
	"clusterroles":               "ClusterRole",
	"configmaps":                 "ConfigMap",
	"deployments":                "Deployment",
	"nodes":                      "Node",
	"nodes/proxy":                "NodeProxyOptions",
	"persistentvolumeclaims":     "PersistentVolumeClaim",
	"persistentvolumes":          "PersistentVolume",
	"pods":                       "Pod",
	"pods/exec":                  "PodExecOptions",
	"pods/proxy":                 "PodProxyOptions",
	"resourceclaims":             "ResourceClaim",
	"secrets":                    "Secret",
	"serviceaccounts/token":      "TokenRequest",
	"services/proxy":             "ServiceProxyOptions",
	"things":                     "Thing",
	"widgets":                    "Widget",
}

// toAdmission writes the data that is known in admission, together with the request that was authorized.
func toAdmission(q vectors.AuthorizationConditionsRequest) (*admissionv1.AdmissionRequest, error) {
	switch {
	case q.NamespaceObject != nil:
		return nil, &Inexpressible{"upstream", "a namespaceObject"}
	case q.ImpersonatedRequest != nil:
		return nil, &Inexpressible{"upstream", "an impersonatedRequest"}
	}
	attributes := authorizationv1.ResourceAttributes{}
	if q.Authorized.ResourceAttributes != nil {
		attributes = *q.Authorized.ResourceAttributes
	}
	kind := metav1.GroupVersionKind{Group: attributes.Group, Version: attributes.Version, Kind: kindOf(attributes)}
	resource := metav1.GroupVersionResource{Group: attributes.Group, Version: attributes.Version, Resource: attributes.Resource}
	isDryRun := dryRun(q.Options)
	r := &admissionv1.AdmissionRequest{
		UID: types.UID(q.UID), Kind: kind, Resource: resource, SubResource: attributes.Subresource,
		RequestKind: &kind, RequestResource: &resource, RequestSubResource: attributes.Subresource,
		Name: nameOf(attributes.Name, q.ConditionData), Namespace: attributes.Namespace, Operation: admissionv1.Operation(q.Operation),
		UserInfo: userInfo(q.Authorized), DryRun: &isDryRun,
	}
	var errs [3]error
	r.Object, errs[0] = toRaw(addKind(q.Object, kind))
	r.OldObject, errs[1] = toRaw(addKind(q.OldObject, kind))
	r.Options, errs[2] = toRaw(q.Options)
	return r, errors.Join(errs[:]...)
}

// fromAdmission reads the data that is known in admission.
func fromAdmission(r *admissionv1.AdmissionRequest) (d vectors.ConditionData, err error) {
	d.Operation = string(r.Operation)
	var errs [3]error
	d.Object, errs[0] = fromRaw(r.Object)
	d.OldObject, errs[1] = fromRaw(r.OldObject)
	d.Options, errs[2] = fromRaw(r.Options)
	return d, errors.Join(errs[:]...)
}

func kindOf(a authorizationv1.ResourceAttributes) string {
	if a.Subresource != "" {
		return kinds[a.Resource+"/"+a.Subresource]
	}
	return kinds[a.Resource]
}

// addKind returns an object with its version and kind, as an API server sends it.
func addKind(o vectors.Object, kind metav1.GroupVersionKind) vectors.Object {
	if o == nil || kind.Kind == "" || o["kind"] != nil {
		return o
	}
	out := maps.Clone(o)
	out["apiVersion"], out["kind"] = metav1.GroupVersion{Group: kind.Group, Version: kind.Version}.String(), kind.Kind
	return out
}

// nameOf returns the name in the request, or else the name in the object: a create request has no name of its own. If
// the object has a generateName, its name was generated and is not the name of the request.
func nameOf(name string, d vectors.ConditionData) string {
	for _, o := range []vectors.Object{d.Object, d.OldObject} {
		metadata, _ := o["metadata"].(map[string]any)
		own, isText := metadata["name"].(string)
		isGiven := isText && metadata["generateName"] == nil
		if isGiven && name == "" {
			name = own
		}
	}
	return name
}

// dryRun reports whether the operation's options ask for a dry run.
func dryRun(options vectors.Object) bool {
	all, _ := options["dryRun"].([]any)
	return slices.Contains(all, any(metav1.DryRunAll))
}

func userInfo(s authorizationv1.SubjectAccessReviewSpec) authenticationv1.UserInfo {
	u := authenticationv1.UserInfo{Username: s.User, UID: s.UID, Groups: s.Groups}
	for key, values := range s.Extra {
		if u.Extra == nil {
			u.Extra = map[string]authenticationv1.ExtraValue{}
		}
		u.Extra[key] = authenticationv1.ExtraValue(values)
	}
	return u
}

func toRaw(o vectors.Object) (r runtime.RawExtension, err error) {
	if o != nil {
		r.Raw, err = json.Marshal(o)
	}
	return r, err
}

func fromRaw(r runtime.RawExtension) (o vectors.Object, err error) {
	if len(r.Raw) == 0 || string(r.Raw) == "null" {
		return nil, nil
	}
	if err := json.Unmarshal(r.Raw, &o); err != nil {
		return nil, errors.New("the admissionRequest has something that is not an object")
	}
	return o, nil
}
