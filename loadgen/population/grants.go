package population

import (
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/reports/load/run"
	"github.com/authzconf/authzconf/scenarios"
)

const authenticationGroup = "authentication.k8s.io"

// Grants are the permissions of a variant's agents, and first what everybody has: to read pods. Impersonated nodes
// and users read as themselves.
func Grants(variant profile.Variant) []scenarios.Grant {
	agents := scenarios.Subject{Group: "system:serviceaccounts:" + space(variant)}
	list := []scenarios.Grant{{
		ID: "read", Subject: scenarios.Subject{Group: "system:authenticated"},
		Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"},
	}, {
		ID: "ask", Subject: scenarios.Subject{Group: "system:authenticated"}, // as system:basic-user
		Verbs: []string{"create"}, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews"},
	}}
	add := func(id, group string, resources []string, verbs ...string) {
		list = append(list, scenarios.Grant{ID: id, Subject: agents, Verbs: verbs, APIGroups: []string{group}, Resources: resources})
	}
	action := func(mode string) {
		prefix := "impersonate-on:" + mode + ":"
		add(mode+"-action", "", []string{"pods"}, prefix+"get", prefix+"list", prefix+"watch")
		add(mode+"-reviews", "authorization.k8s.io", []string{"selfsubjectaccessreviews"}, prefix+"create")
	}
	for _, grant := range variant.Grants {
		switch grant {
		case profile.GrantAssociated, profile.GrantArbitrary:
			add(grant, authenticationGroup, []string{"nodes"}, "impersonate:"+grant)
			action(grant)
		case profile.GrantAssociatedAction:
			action(profile.GrantAssociated)
		case profile.GrantUserInfo:
			add(grant, authenticationGroup, []string{"users", "groups", "userextras/" + extraKey}, "impersonate:user-info")
			action(grant)
		case profile.GrantLegacy:
			add("legacy", "", []string{"users", "groups"}, "impersonate")
			add("legacy-extra", authenticationGroup, []string{"userextras/" + extraKey}, "impersonate")
		}
	}
	return list
}

// Predict asks the oracle what requests of a variant cost: the mean number of reviews over the mix, of an agent
// that the server does not know, and of the same request again at once. kubernetes is the server's effective
// version.
func Predict(p *profile.Profile, side profile.Side, kubernetes string) (*run.Prediction, error) {
	variant, err := profile.VariantNamed(side.Variant)
	if err != nil {
		return nil, err
	}
	gate := scenarios.GateOff
	if side.Server.Gate() == profile.GateOn {
		gate = scenarios.GateOn
	}
	q := asking(variant, p.Identities(variant), 0)
	requestor := oracle.RequestorOf("agent", scenarios.Requestor{ServiceAccount: &scenarios.ServiceAccount{
		Namespace: space(variant), Name: agentName(q.identity), Pod: agentName(q.identity), Node: nodeName(q.identity),
	}})
	var out run.Prediction
	total := 0
	for kind, weight := range p.Plan(0).Mix {
		if weight == 0 {
			continue
		}
		// A server for each kind: none is known from another.
		server, err := oracle.New(oracle.Config{Kubernetes: kubernetes, Gate: gate, Grants: Grants(variant)})
		if err != nil {
			return nil, err
		}
		path, query := target(kind, q.node, p.PodsPerNode, 0)
		values, err := url.ParseQuery(query)
		if err != nil {
			return nil, err
		}
		asked := oracle.Request{Attributes: oracle.ParseRequest("GET", path, values)}
		if profile.Kinds()[kind] == profile.Review {
			asked.Attributes = oracle.ParseRequest("POST", path, values)
			if err := json.Unmarshal([]byte(selfReview), &asked.Body); err != nil {
				return nil, err
			}
		}
		for i, sum := range []*float64{&out.Cold, &out.Warm} {
			prediction := server.Do(requestor, q.imp, asked)
			if forbidden := prediction.Code == 403; forbidden != variant.Denied {
				return nil, fmt.Errorf("the oracle says of %s on %s, request %d: code %d, %v", variant.Name, side.Server, i+1, prediction.Code, prediction.Messages)
			}
			sequences, _ := prediction.Sequences()
			*sum += float64(weight * len(sequences[0]))
		}
		total += weight
	}
	out.Cold /= float64(total)
	out.Warm /= float64(total)
	return &out, nil
}
