package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// answerLimit is how much is kept of an answer to a client that was not refused: discovery documents are long.
const answerLimit = 2 << 10

// shell is where a requestor runs kubectl: a home folder with a kubeconfig, and the tap that kubectl takes for the
// API server. The tap passes each request on unchanged and observes it by itself, so that reviews, audit event and
// metrics belong to the one request, however many a command sends.
type shell struct {
	run  *run
	by   string
	home string
	tap  *recorder.Server
	next http.RoundTripper

	mu           sync.Mutex
	observations []verdicts.Observation
	err          error
}

func (run *run) shell(ctx context.Context, requestor string) (_ *shell, err error) {
	if s := run.shells[requestor]; s != nil {
		return s, nil
	}
	s := &shell{run: run, by: requestor}
	config := rest.CopyConfig(run.target.Anonymous())
	config.NextProtos = []string{"http/1.1"}
	if s.next, err = rest.TransportFor(config); err != nil {
		return nil, err
	}
	if s.tap, err = server.ServeLoopback(ctx, s, nil); err != nil {
		return nil, err
	}
	run.shells[requestor] = s
	if s.home, err = run.target.TempDir("kubectl-"); err != nil {
		return nil, err
	}
	raw, err := clusters.Kubeconfig("authzconf", &rest.Config{
		Host: s.tap.URL, BearerToken: run.tokens[requestor], TLSClientConfig: rest.TLSClientConfig{CAData: s.tap.CA},
	})
	if err != nil {
		return nil, err
	}
	return s, os.WriteFile(s.kubeconfig(), raw, 0o600) // only this user can read the token
}

func (run *run) closeShells() {
	for _, s := range run.shells {
		_ = s.tap.Close()
		_ = os.RemoveAll(s.home)
	}
}

func (s *shell) kubeconfig() string { return filepath.Join(s.home, "kubeconfig") }

func (run *run) kubectl(ctx context.Context, step int, k *scenarios.Kubectl) (verdicts.Observation, error) {
	o := verdicts.Observation{
		Step: step, Request: verdicts.SentRequest{Requestor: run.bound.Requestors[k.By].Username()},
		Client: &verdicts.ClientRun{Command: k.Line()},
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s, err := run.shell(ctx, k.By)
	if err != nil {
		return o, fmt.Errorf("preparing kubectl: %w", err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, run.target.Kubectl[k.Version], k.Args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.home, &stdout, &stderr
	// Nothing of this process's environment: no kubeconfig of the user, no proxies, no language for messages.
	cmd.Env = []string{"HOME=" + s.home, "KUBECONFIG=" + s.kubeconfig(), "KUBECTL_KUBERC=false", "LANG=C", "PATH="}
	o.Sent = time.Now()
	err = local.RunChild(cmd)
	o.Answered = time.Now()
	var seenErr error
	if o.Requests, o.Client.UserAgent, seenErr = s.take(); seenErr != nil {
		return o, fmt.Errorf("step %d, %s: %w", step, k.Line(), seenErr)
	}
	_, exited := errors.AsType[*exec.ExitError](err)
	if exited && ctx.Err() == nil {
		err = nil // a command that fails is evidence, unless it was interrupted
	}
	if err != nil {
		return o, fmt.Errorf("step %d, %s: %w", step, k.Line(), errors.Join(err, ctx.Err()))
	}
	o.Client.ExitCode = cmd.ProcessState.ExitCode()
	o.Client.Stdout, o.Client.Stderr = s.renderOutput(&stdout), s.renderOutput(&stderr)
	return o, nil
}

// renderOutput returns output as evidence, without the paths and ports of this run.
func (s *shell) renderOutput(out *bytes.Buffer) string {
	text := string(out.Bytes()[:min(out.Len(), bodyLimit)])
	return strings.NewReplacer(s.home, "$HOME", s.tap.URL, "$SERVER").Replace(text)
}

func (s *shell) take() (observations []verdicts.Observation, userAgent string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	observations, err = s.observations, s.err
	s.observations, s.err = nil, nil
	if len(observations) > 0 {
		userAgent = observations[0].Request.UserAgent
	}
	return observations, userAgent, err
}

func (s *shell) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o, resp, body, err := s.pass(r) //nolint:bodyclose // pass has read and closed it
	s.mu.Lock()
	if err != nil {
		s.err = errors.Join(s.err, fmt.Errorf("%s %s: %w", r.Method, r.URL.RequestURI(), err))
	} else {
		s.observations = append(s.observations, o)
	}
	s.mu.Unlock()
	if err != nil {
		http.Error(w, "the request could not be passed on", http.StatusBadGateway)
		return
	}
	maps.Copy(w.Header(), resp.Header)
	w.Header().Del("Content-Length")
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(body)
}

func (s *shell) pass(r *http.Request) (o verdicts.Observation, resp *http.Response, body []byte, err error) {
	payload, err := io.ReadAll(r.Body)
	if err != nil {
		return o, nil, nil, err
	}
	o.Request.Requestor = s.run.bound.Requestors[s.by].Username()
	Record(&o.Request, r)
	if json.Valid(payload) {
		o.Request.Body = payload
	}
	req, err := http.NewRequestWithContext(r.Context(), r.Method, s.run.target.Host()+r.URL.RequestURI(), bytes.NewReader(payload))
	if err != nil {
		return o, nil, nil, err
	}
	req.Header = r.Header.Clone()
	req.Header.Del("Accept-Encoding") // so that the answer comes as it is
	err = s.run.target.Observe(r.Context(), &o, func() error {
		o.Sent = time.Now()
		if resp, err = s.next.RoundTrip(req); err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return errors.New("the connection was upgraded, and what is said on it cannot be observed")
		}
		body, err = io.ReadAll(resp.Body)
		o.Answered = time.Now()
		o.Response = verdicts.Response{
			Code: resp.StatusCode, AuditID: resp.Header.Get(auditIDHeader),
			Body: shownBody(resp.StatusCode, body), Warnings: resp.Header.Values("Warning"),
		}
		return err
	})
	if err == nil && o.Response.Broken != "" { // the client may ask again, and nobody knows what it makes of this
		err = errors.New(o.Response.Broken)
	}
	return o, resp, body, err
}

// shownBody is an answer as evidence: a refusal whole, and as JSON where the client asked for protobuf.
func shownBody(code int, body []byte) string {
	limit := answerLimit
	if code >= http.StatusBadRequest {
		limit = bodyLimit
		if decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
			if status, ok := decoded.(*metav1.Status); ok {
				status.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Status"})
				if raw, err := json.Marshal(status); err == nil {
					body = raw
				}
			}
		}
	}
	if !utf8.Valid(body) {
		return fmt.Sprintf("%d bytes that are no text", len(body))
	}
	return strings.ToValidUTF8(string(body[:min(len(body), limit)]), "")
}
