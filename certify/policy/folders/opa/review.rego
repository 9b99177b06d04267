# The decision document is a whole SubjectAccessReview, so that OPA's own server is a webhook authorizer: its API
# /v0/data/authzconf/webhook/review takes a review as its input, and answers with nothing but the decision. For what is
# not a review there is no decision: OPA answers with 404.
package authzconf.webhook

import data.authzconf.certification

review := {
	"apiVersion": input.apiVersion,
	"kind": input.kind,
	"metadata": {},
	"spec": {},
	"status": {"allowed": allowed, "denied": false},
} if {
	input.kind == "SubjectAccessReview"
	somebody_asks
	asks_one_thing
}

# v1beta1 has the groups under another name.
spec := input.spec if input.apiVersion == "authorization.k8s.io/v1"

spec := object.union(input.spec, {"groups": object.get(input.spec, "group", [])}) if {
	input.apiVersion == "authorization.k8s.io/v1beta1"
}

allowed := decision if decision := certification.allow with input as spec

somebody_asks if {
	is_string(spec.user)
	spec.user != ""
}

somebody_asks if {
	object.get(spec, "user", "") == ""
	count(object.get(spec, "groups", [])) > 0
}

asks_one_thing if {
	some attributes in ["resourceAttributes", "nonResourceAttributes"]
	is_object(spec[attributes])
	count([a | some a in ["resourceAttributes", "nonResourceAttributes"]; object.get(spec, a, null) != null]) == 1
}
