package deputy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/deputy/reference"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

const (
	proxyAlias     = "periscope"
	proxyNamespace = "periscope"
	proxyName      = "system:serviceaccount:periscope:periscope"
	timeout        = 15 * time.Second // how long a single answer may take
)

// plane is a target with a proxy identity on it: a ServiceAccount that may impersonate.
type plane struct {
	*server.Server
	admin     kubernetes.Interface
	token     string
	transport http.RoundTripper // without credentials
	url       *url.URL
}

// start brings a target up with what is granted on it.
func start(ctx context.Context, o server.Options, grants []scenarios.Grant, namespaces []string) (_ *plane, err error) {
	p := &plane{}
	if p.Server, err = server.Start(ctx, o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Stop())
		}
	}()
	replayer, err := replay.New(p.Server)
	if err != nil {
		return nil, err
	}
	p.admin = replayer.Admin()
	if p.transport, err = rest.TransportFor(p.Anonymous()); err != nil {
		return nil, err
	}
	if p.url, err = url.Parse(p.Host()); err != nil {
		return nil, err
	}
	needs := &scenarios.Scenario{ID: "deputy", Grants: grants, Requestors: map[string]scenarios.Requestor{
		proxyAlias: {ServiceAccount: &scenarios.ServiceAccount{Namespace: proxyNamespace, Name: "periscope"}},
	}}
	for _, ns := range namespaces { // some of them without any grant
		needs.Objects = append(needs.Objects, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": ns}},
			map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default", "namespace": ns}}) // for pods
	}
	granted, err := replayer.Provision(ctx, needs)
	if err != nil {
		return nil, fmt.Errorf("provisioning: %w", err)
	}
	p.token = granted.Token(proxyAlias)
	return p, nil
}

// serve serves whoever acts for people.
func (p *plane) serve(ctx context.Context, handler http.Handler, people []*Identity) (*endpoint, error) {
	l, err := server.ServeLoopback(ctx, handler, nil)
	if err != nil {
		return nil, err
	}
	ep := &endpoint{tls: &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}, people: people, namespace: Namespace, timeout: timeout, trail: p.trail(), plane: p, close: l.Close}
	ep.tls.RootCAs.AppendCertsFromPEM(l.CA)
	if ep.url, err = url.Parse(l.URL); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return ep, nil
}

// agent starts the reference agent, the end of a tunnel, in front of an address.
func (p *plane) agent(ctx context.Context, to *url.URL, people []*Identity) (*endpoint, error) {
	return p.serve(ctx, reference.NewAgent(to, p.transport, func() string { return p.token }), people)
}

func (p *plane) trail() auditTrail {
	return auditTrail{
		send:    func(ctx context.Context, marker string) error { return mark(ctx, p.admin, Namespace, marker) },
		look:    func(texts ...string) ([]json.RawMessage, error) { return p.Events(texts...), p.ClusterErr() },
		timeout: timeout,
	}
}

func (p *plane) writeKubeconfig(dir string) (string, error) {
	config := p.Anonymous()
	config.BearerToken = p.token
	if err := rest.LoadTLSFiles(config); err != nil {
		return "", err
	}
	data, err := clusters.Kubeconfig("proxy", config)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubeconfig")
	return path, os.WriteFile(path, data, 0o600)
}

// decision is the annotation of the authorization filter; empty if the request did not get there
// (k8s.io/apiserver/pkg/endpoints/filters/authorization.go).
func decision(e auditv1.Event) string { return e.Annotations["authorization.k8s.io/decision"] }

type kind struct {
	group, version, resource, sub string
	cluster                       bool
}

var kinds = []kind{
	{"", "v1", "pods", "", false},
	{"", "v1", "pods", "log", false},
	{"", "v1", "configmaps", "", false},
	{"", "v1", "secrets", "", false},
	{"", "v1", "nodes", "", true},
	{"apps", "v1", "deployments", "", false},
	{"apps", "v1", "deployments", "scale", false},
	{"rbac.authorization.k8s.io", "v1", "clusterroles", "", true},
}

func (k kind) full() string { return scenarios.FullResource(k.resource, k.sub) }

// verbs with whether they name an object.
var verbs = map[string]bool{
	"get": true, "list": false, "watch": false, "create": false, "update": true, "patch": true, "delete": true, "deletecollection": false,
}

var objectNames = []string{"web", "db"}

// pair is a question of the pre-flight and the request that it is about.
type pair struct {
	who       *Identity
	verb      string
	kind      kind
	namespace string
	name      string
}

// fixture is what is granted to whom, made from a seed.
type fixture struct {
	people     []*Identity
	namespaces []string
	grants     []scenarios.Grant // those of the people; the proxy's are not among them
}

const (
	// peopleCount is how many people there are, every sixth of them out of the proxy's reach.
	peopleCount = 12
	spaceCount  = 4
	grantCount  = 60
)

func somebody() (out []*Identity) {
	for i := range peopleCount {
		who := asserted(fmt.Sprintf("user-%d@corp", i), tierOf(i))
		who.outOfReach = i%6 == 5
		out = append(out, who)
	}
	return out
}

func newFixture(seed int64, people []*Identity) (*fixture, *rand.Rand) {
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	f := &fixture{people: people}
	for i := range spaceCount {
		f.namespaces = append(f.namespaces, fmt.Sprintf("team-%d", i))
	}
	for range grantCount {
		f.grants = append(f.grants, f.grant(random))
	}
	return f, random
}

// grant is one at random: to a user or a tier, in a namespace or everywhere, for all names or some.
func (f *fixture) grant(random *rand.Rand) scenarios.Grant {
	who := f.people[random.IntN(len(f.people))]
	g := scenarios.Grant{Subject: scenarios.Subject{User: who.Name}}
	if random.IntN(3) == 0 && len(who.Groups) > 0 {
		g.Subject = scenarios.Subject{Group: who.Groups[0]}
	}
	all := sortedVerbs()
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	g.Verbs = all[:1+random.IntN(4)]
	if random.IntN(12) == 0 {
		g.Verbs = []string{"*"}
	}
	k := kinds[random.IntN(len(kinds))]
	g.APIGroups, g.Resources = []string{k.group}, []string{k.full()}
	if random.IntN(2) == 0 && !k.cluster {
		g.Namespace = f.namespaces[random.IntN(len(f.namespaces))]
	}
	if random.IntN(4) == 0 {
		g.Names = []string{objectNames[random.IntN(len(objectNames))]}
	}
	return g
}

func sortedVerbs() []string { return slices.Sorted(maps.Keys(verbs)) }

func (f *fixture) pairs(random *rand.Rand) (out []pair) {
	for _, who := range f.people {
		for _, verb := range sortedVerbs() {
			names := []string{""}
			if verbs[verb] {
				names = objectNames
			}
			for _, k := range kinds {
				spaces := f.namespaces
				if k.cluster {
					spaces = []string{""}
				}
				if k.sub != "" && !verbs[verb] {
					continue // a subresource is one of an object
				}
				for _, ns := range spaces {
					out = append(out, seq.Map(names, func(name string) pair { return pair{who, verb, k, ns, name} })...)
				}
			}
		}
	}
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func (p pair) String() string {
	s := fmt.Sprintf("%s: %s %s", p.who.Name, p.verb, p.kind.full())
	if p.name != "" {
		s += " " + p.name
	}
	if p.namespace != "" {
		s += " in " + p.namespace
	}
	return s
}

// attributes are what the pre-flight asks about.
func (p pair) attributes() *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{
		Verb: p.verb, Group: p.kind.group, Version: p.kind.version, Resource: p.kind.resource, Subresource: p.kind.sub, Namespace: p.namespace, Name: p.name,
	}
}

// granted tells whether a grant of the fixture is for the pair: with that pre-flight and request are compared.
func (f *fixture) granted(p pair) bool { return p.who.granted(f.grants, p.attributes()) }

// granted tells whether one of the grants lets the person do something.
func (id *Identity) granted(grants []scenarios.Grant, what *authorizationv1.ResourceAttributes) bool {
	return scenarios.Covered(grants, authorizationv1.SubjectAccessReviewSpec{
		User: id.Name, Groups: append([]string{user.AllAuthenticated}, id.Groups...), ResourceAttributes: what,
	})
}

// proxyGrants are the proxy's own grants: for the people in its reach, or for everybody without any, by legacy
// impersonation or by constrained, with every action that is tried.
func proxyGrants(people []*Identity, constrained bool) []scenarios.Grant {
	var users, groups []string
	for _, p := range people {
		if !p.outOfReach {
			users, groups = append(users, p.Name), append(groups, p.Groups...)
		}
	}
	groups = sets.List(sets.New(groups...))
	grant := func(verbs []string, apiGroup string, names []string, resources ...string) scenarios.Grant {
		return scenarios.Grant{Subject: scenarios.Subject{User: proxyName}, Verbs: verbs, APIGroups: []string{apiGroup}, Resources: resources, Names: names}
	}
	const authn = "authentication.k8s.io"
	as, home := []string{"impersonate"}, "" // of which API group users and groups are
	if constrained {
		as, home = []string{"impersonate:user-info"}, authn
	}
	list := []scenarios.Grant{grant(as, home, users, "users"), grant(as, home, groups, "groups")}
	if people == nil { // RBAC has no userextras/*
		list = append(list, grant(as, authn, nil, "*"), grant(as, home, nil, "serviceaccounts"))
	}
	if !constrained {
		return list
	}
	on := func(verbs ...string) []string {
		return seq.Map(verbs, func(verb string) string { return "impersonate-on:user-info:" + verb })
	}
	list = append(list, grant(on("create"), "authorization.k8s.io", nil, "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
		scenarios.Grant{Subject: scenarios.Subject{User: proxyName}, Verbs: on("get"), NonResourceURLs: []string{"/api", "/apis", "/version", "/debug/pprof"}})
	for _, k := range kinds {
		list = append(list, grant(on(sortedVerbs()...), k.group, nil, k.full()))
	}
	return list
}
