package certify

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
)

const maxShown = 4 << 10

// Explain sends a question of a plan once more, and shows request and answer on one screen: what was asked, as curl
// would send it, what came back, and what is right and why. An error is about the input.
func Explain(ctx context.Context, w *Webhook, b *Plan, id string) (text string, right bool, err error) {
	v, ok := b.findQuestion(id)
	if !ok {
		return "", false, fmt.Errorf(
			"seed %d has no question %q: findings name theirs first, as in scenario/…#3 or relation/ignores-name/1",
			b.Policy.Seed,
			id,
		)
	}
	c, err := w.newClient(false)
	if err != nil {
		return "", false, err
	}
	defer c.close()
	request, err := c.curl(ctx, v)
	if err != nil {
		return "", false, err
	}
	a := c.ask(ctx, plainCheck, v)
	wrong := judge(v, a)
	verdict := "right"
	if len(wrong) > 0 {
		verdict = "wrong: " + strings.Join(wrong, ", ")
	}
	answer := a.Raw
	if a.Length > 0 {
		answer = fmt.Sprintf("(%d bytes)", a.Length)
	}
	return fmt.Sprintf("%s\n\n%s\n\nHTTP/%d %d in %d ms\n%s\n\n%s (level %s)\n", b.describeQuestion(v, a), request, a.Protocol, a.HTTP, a.Millis, strings.TrimSpace(answer), verdict, v.Level), len(wrong) == 0, nil
}

// curl returns the request of a question as a shell command. It contains no credentials, but names their files.
func (c *client) curl(ctx context.Context, v Question) (string, error) {
	body, err := v.body()
	if err != nil {
		return "", err
	}
	return c.show(ctx, cmp.Or(v.Method, http.MethodPost), body)
}

// Curl returns the shell command that sends a body to the webhook. It contains no credentials, but names their files.
func (w *Webhook) Curl(ctx context.Context, body []byte) (string, error) {
	c, err := w.newClient(false)
	if err != nil {
		return "", err
	}
	defer c.close()
	return c.show(ctx, http.MethodPost, body)
}

// show returns a request as a shell command.
func (c *client) show(ctx context.Context, method string, body []byte) (string, error) {
	req, err := c.request(ctx, method, body)
	if err != nil {
		return "", err
	}
	flags := []string{"curl", "-X", method}
	tls := c.config.TLSClientConfig
	for _, f := range []struct {
		given bool
		flag  string
	}{
		{tls.Insecure, "--insecure"}, {len(tls.CAData)+len(tls.CAFile) > 0, "--cacert ca.pem"},
		{len(tls.CertData)+len(tls.CertFile) > 0, "--cert client.pem --key client-key.pem"},
		{c.config.BearerToken+c.config.BearerTokenFile != "", `-H "Authorization: Bearer $TOKEN"`},
		{c.config.Username != "", `--user "$USER_AND_PASSWORD"`},
	} {
		if f.given {
			flags = append(flags, f.flag)
		}
	}
	for _, name := range []string{"Content-Type", "Accept"} {
		flags = append(flags, fmt.Sprintf("-H '%s: %s'", name, req.Header.Get(name)))
	}
	text := strings.ToValidUTF8(string(body), "\uFFFD")
	if len(text) > maxShown {
		text = fmt.Sprintf("%s… (%d bytes in all)", strings.ToValidUTF8(text[:maxShown], ""), len(body))
	}
	return fmt.Sprintf("%s \\\n  --data-binary @- '%s' <<'EOF'\n%s\nEOF", strings.Join(flags, " "), req.URL, text), nil
}
