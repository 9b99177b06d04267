package surface

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

// Surface is everything about an API server that enabling a feature could add to.
type Surface struct {
	Witness reports.Witness `json:"witness"`
	// OpenAPI names the documents of types and fields, each by a digest of its content.
	OpenAPI map[string]string `json:"openAPI"`
	// Resources are API group, version, resource and verbs of everything that discovery lists.
	Resources map[string]string `json:"resources"`
	// Flags are the texts of the program's help, by flag.
	Flags map[string]string `json:"flags"`
	// Metrics are the HELP texts, by metric family.
	Metrics map[string]string `json:"metrics"`
	// Objects are the sizes of all values in etcd, in bytes, but for those that are written again all the time.
	Objects map[string]int `json:"objects"`
	// Indicators are how often the SLI of request durations counted the requests that were sent, by its labels.
	Indicators map[string]int `json:"indicators"`
	// Logged are the lines that the server logged meanwhile and that have something to do with the requests.
	Logged []string `json:"logged"`
	// Before and After are what the server's process had before the requests and after them.
	Before Process `json:"before"`
	After  Process `json:"after"`
	// Agents are what processes that watch as somebody else hold in all, if there were any.
	Agents *Process `json:"agents,omitempty"`
}

const aggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// look reads the surface of a server, and sends requests meanwhile.
func (p *plan) look(ctx context.Context, s *server.Server, at stage) (surface Surface, err error) {
	surface.Witness = s.Witness
	client, err := rest.HTTPClientFor(s.Admin())
	if err != nil {
		return surface, err
	}
	a := admin{client, s.Host()}
	if surface.OpenAPI, err = a.readOpenAPI(ctx); err != nil {
		return surface, err
	}
	if surface.Resources, err = a.readResources(ctx); err != nil {
		return surface, err
	}
	if surface.Flags, err = at.readFlags(ctx); err != nil {
		return surface, err
	}
	if err := p.observeRequests(ctx, s, a, &surface); err != nil {
		return surface, err
	}
	if p.agents > 0 {
		if surface.Agents, err = at.observeAgents(ctx, s, p.agents); err != nil {
			return surface, err
		}
	}
	if surface.Metrics, err = readHelp(ctx, s); err != nil {
		return surface, err
	}
	surface.Objects, err = readObjects(ctx, s)
	return surface, err
}

// admin reads as a member of system:masters.
type admin struct {
	client *http.Client
	host   string
}

// get returns the body of the answer to a GET, with further headers, each behind its name. Any other answer than OK is an
// error.
func (a admin) get(ctx context.Context, path string, headers ...string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.host+path, nil)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.200s", path, resp.Status, body)
	}
	return body, err
}

// readOpenAPI reads the index of the documents, which are named with the digest of their content.
func (a admin) readOpenAPI(ctx context.Context) (map[string]string, error) {
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	body, err := a.get(ctx, "/openapi/v3", "Accept", "application/json")
	if err == nil {
		err = json.Unmarshal(body, &index)
	}
	documents := map[string]string{}
	for path, d := range index.Paths {
		_, documents[path], _ = strings.Cut(d.ServerRelativeURL, "hash=")
	}
	return documents, err
}

// readResources reads what discovery lists.
func (a admin) readResources(ctx context.Context) (map[string]string, error) {
	resources := map[string]string{}
	for _, path := range []string{"/api", "/apis"} {
		body, err := a.get(ctx, path, "Accept", aggregatedDiscovery)
		if err != nil {
			return nil, err
		}
		if err := addResources(body, resources); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
	}
	return resources, nil
}

// addResources adds the resources and subresources of a list of groups, with their verbs.
func addResources(list []byte, resources map[string]string) error {
	var groups struct {
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct {
				Version   string
				Resources []struct {
					Resource     string
					Verbs        []string
					Subresources []struct {
						Subresource string
						Verbs       []string
					}
				}
			}
		}
	}
	if err := json.Unmarshal(list, &groups); err != nil {
		return err
	}
	for _, g := range groups.Items {
		for _, v := range g.Versions {
			for _, r := range v.Resources {
				name := strings.Join([]string{g.Metadata.Name, v.Version, r.Resource}, "/")
				resources[name] = strings.Join(r.Verbs, ",")
				for _, sub := range r.Subresources {
					resources[name+"/"+sub.Subresource] = strings.Join(sub.Verbs, ",")
				}
			}
		}
	}
	return nil
}

// flagLine matches the first line of a flag in a program's help.
var flagLine = regexp.MustCompile(`^ +(?:-\w, )?--([a-z0-9-]+)`)

// readFlags reads the help of the program, with the gate as it is.
func (s stage) readFlags(ctx context.Context) (map[string]string, error) {
	program, err := s.options.Binaries.KubeAPIServer(ctx, s.options.Release)
	if err != nil {
		return nil, err
	}
	args := []string{"--help"}
	if server.HasGate(s.options.Release.Version) {
		args = append(args, fmt.Sprintf("--feature-gates=%s=%t", server.GateName, s.gate() == scenarios.GateOn))
	}
	help, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("the help of %s: %w", program, err)
	}
	return parseFlags(string(help)), nil
}

// parseFlags returns the texts of the flags in a program's help.
func parseFlags(help string) map[string]string {
	flags, current := map[string]string{}, ""
	for line := range strings.Lines(help) {
		if m := flagLine.FindStringSubmatch(line); m != nil {
			current = m[1]
		}
		if strings.TrimSpace(line) == "" {
			current = ""
		}
		if current != "" {
			flags[current] += strings.TrimSpace(line) + " "
		}
	}
	return flags
}

// readHelp reads the HELP texts of all metric families.
func readHelp(ctx context.Context, s *server.Server) (map[string]string, error) {
	families, err := s.Scrape(ctx, "")
	texts := map[string]string{}
	for name, family := range families {
		texts[name] = family.GetHelp()
	}
	return texts, err
}

// renewed matches the keys of objects that an API server writes again all the time, or when it starts.
var renewed = regexp.MustCompile(`^/registry/(leases|masterleases|events|ranges|peerserverleases)/|compact_rev_key`)

// readObjects reads the sizes of all values in etcd.
func readObjects(ctx context.Context, s *server.Server) (map[string]int, error) {
	storage, err := s.Storage()
	if err != nil {
		return nil, err
	}
	defer func() { _ = storage.Close() }()
	sizes, err := storage.Sizes(ctx)
	maps.DeleteFunc(sizes, func(key string, _ int) bool { return renewed.MatchString(key) })
	return sizes, err
}

// readLog returns the server's log so far.
func readLog(s *server.Server) ([]byte, error) {
	return os.ReadFile(filepath.Join(s.Dir(), "kube-apiserver.log"))
}
