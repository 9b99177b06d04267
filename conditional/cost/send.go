package cost

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// User is who sends a request, as an authenticating proxy says it.
type User struct {
	Name   string
	Groups []string
	Extra  map[string][]string
	// Outside says that the user is no member of Group.
	Outside bool
}

// Response is what came back.
type Response struct {
	Code     int
	Body     []byte
	Warnings []string
}

// Status is the message of a Status, if it is one.
func (r Response) Status() string {
	var s struct{ Kind, Message string }
	if json.Unmarshal(r.Body, &s) != nil || s.Kind != "Status" {
		return ""
	}
	return s.Message
}

// Requestor sends requests of users, over connections of its own.
type Requestor struct {
	base   string
	client *http.Client
}

// Requestor is the authenticating proxy.
func (c *Cluster) Requestor() (*Requestor, error) {
	config := c.FrontProxy()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Requestor{config.Host, client}, nil
}

// Send sends a request of a user, nil for the admin.
func (c *Cluster) Send(ctx context.Context, u *User, method, path, contentType string, body any) (Response, error) {
	r := &Requestor{c.Admin().Host, c.admin}
	if u != nil {
		var err error
		if r, err = c.Requestor(); err != nil {
			return Response{}, err
		}
	}
	return r.Send(ctx, u, method, path, contentType, body)
}

// Send sends a request with a JSON body.
func (r *Requestor) Send(ctx context.Context, u *User, method, path, contentType string, body any) (Response, error) {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return Response{}, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, bytes.NewReader(raw))
	if err != nil {
		return Response{}, err
	}
	if contentType == "" {
		contentType = "application/json"
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/json")
	if u != nil {
		req.Header.Set("X-Remote-User", u.Name)
		groups := u.Groups
		if !u.Outside {
			groups = append([]string{Group}, groups...)
		}
		for _, g := range groups {
			req.Header.Add("X-Remote-Group", g)
		}
		for k, vs := range u.Extra {
			for _, v := range vs {
				req.Header.Add("X-Remote-Extra-"+url.PathEscape(k), v)
			}
		}
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	out := Response{Code: resp.StatusCode, Warnings: resp.Header.Values("Warning")}
	out.Body, err = io.ReadAll(resp.Body)
	return out, err
}

// admissionKubeconfig gives the API server the client certificate of another
// kubeconfig for a webhook, which it looks up by host and port.
func admissionKubeconfig(raw []byte, host string) ([]byte, error) {
	from, err := clientcmd.Load(raw)
	if err != nil {
		return nil, fmt.Errorf("conditional: %w", err)
	}
	to := clientcmdapi.NewConfig()
	to.AuthInfos[host] = from.AuthInfos[from.Contexts[from.CurrentContext].AuthInfo]
	return clientcmd.Write(*to)
}
