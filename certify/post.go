package certify

import (
	"context"
	"io"
	"net/http"
)

// Poster posts to a webhook over connections that are kept.
type Poster struct{ client *client }

// Poster makes one. Its error is about the credentials of the kubeconfig.
func (w *Webhook) Poster() (*Poster, error) {
	c, err := w.client(false)
	if err != nil {
		return nil, err
	}
	return &Poster{c}, nil
}

// Close ends its connections.
func (p *Poster) Close() { p.client.close() }

// Post posts JSON as API servers do. A fault is what went wrong on the way, by the names that certification has
// for it.
func (p *Poster) Post(ctx context.Context, body []byte) (code int, answer []byte, fault string) {
	ctx, cancel := context.WithTimeout(ctx, p.client.Timeout)
	defer cancel()
	req, err := p.client.request(ctx, http.MethodPost, body)
	if err != nil {
		return 0, nil, "harness"
	}
	resp, err := p.client.http.Do(req)
	if err != nil {
		return 0, nil, p.client.fault(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case len(raw) > maxAnswer:
		return resp.StatusCode, nil, "answer-too-large"
	case err != nil:
		return resp.StatusCode, nil, p.client.fault(err)
	}
	return resp.StatusCode, raw, ""
}
