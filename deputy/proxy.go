package deputy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/reports/filing"
)

// Proxy is a proxy of somebody's that is tried in place of the reference deputy and agent.
type Proxy struct {
	// URL is where it listens, APIPrefix where the API is below that, CA its authority's file; unset, the system's count.
	URL, APIPrefix, CA string
	Identities         []string // the values of --identity, People what they say
	People             []*Identity
	// Command starts it with KUBECONFIG, the way to a local control plane. Or else Kubeconfig is that of the cluster behind
	// it, with Context unless its current one is meant, AuditLog the cluster's log, and Namespace where pods are listed.
	Command, Kubeconfig, Context, AuditLog, Namespace string
	// Revoke is a command that makes the credentials of the first person worthless; unset, that is not tried.
	Revoke  string
	Timeout time.Duration // how long the proxy may take to answer

	at *endpoint
}

// existingCluster stands for the kind of impersonation on a cluster that somebody else made.
const existingCluster = "existing"

// check says what is wrong with a proxy before anything is started. With read the files that are named are read.
func (p *Proxy) check(read bool) (err error) {
	to, err := url.Parse(p.URL)
	switch {
	case err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https":
		return fmt.Errorf("--proxy %q is not a URL such as https://127.0.0.1:8443", p.URL)
	case to.RawQuery != "" || to.User != nil || to.Fragment != "":
		return fmt.Errorf("--proxy %s: only scheme, host and path are expected", to.Redacted())
	case (p.Command == "") == (p.Kubeconfig == "" && p.AuditLog == ""):
		return errors.New("--proxy needs either --proxy-command, which is started with KUBECONFIG of a local control plane, or --kubeconfig and --audit-log of the cluster behind it")
	case p.Command == "" && (p.Kubeconfig == "" || p.AuditLog == ""):
		return errors.New("--kubeconfig and --audit-log go together: who arrives is read in the audit log of that cluster (authzconf up --audit-log FILE writes one)")
	case p.APIPrefix != "" && !strings.HasPrefix(p.APIPrefix, "/"):
		return fmt.Errorf("--api-prefix %q: expected a path, such as /k8s/clusters/local", p.APIPrefix)
	case p.Timeout <= 0:
		return errors.New("--timeout: expected more than 0")
	}
	if to.Port() == "" {
		to.Host = net.JoinHostPort(to.Hostname(), map[string]string{"http": "80", "https": "443"}[to.Scheme])
	}
	to.Path = strings.TrimRight(to.Path, "/") + strings.TrimRight(p.APIPrefix, "/")
	if p.People, err = ParseIdentities(p.Identities, read); err != nil {
		return err
	}
	if len(p.People) < 2 {
		return fmt.Errorf("--identity names %d of at least 2 people, who are confused with each other if it goes wrong; %s", len(p.People), identityHelp)
	}
	p.at = &endpoint{url: to, tls: &tls.Config{MinVersion: tls.VersionTLS12}, people: p.People, namespace: p.Namespace, timeout: p.Timeout}
	if p.CA == "" || !read {
		return nil
	}
	data, err := filing.Input(p.CA)
	if err != nil {
		return fmt.Errorf("--proxy-ca: %w", err)
	}
	if p.at.tls.RootCAs = x509.NewCertPool(); !p.at.tls.RootCAs.AppendCertsFromPEM(data) {
		return fmt.Errorf("--proxy-ca %s holds no certificate in PEM", p.CA)
	}
	return nil
}

// probe asks for pods as each person. What does not answer as a Kubernetes API does is the user's to mend.
func (p *Proxy) probe(ctx context.Context) error {
	for _, who := range p.People {
		if err := p.ask(ctx, who); err != nil {
			return &usage.Error{Problem: err.Error()}
		}
	}
	return nil
}

func (p *Proxy) ask(ctx context.Context, who *Identity) error {
	path := podsIn(p.Namespace) + "?limit=1"
	at := p.at.url.String() + path
	resp, err := p.at.get(ctx, path, who)
	if e, ok := errors.AsType[*url.Error](err); ok {
		if e.Timeout() {
			return fmt.Errorf("the proxy %s did not answer within %s (--timeout)", p.URL, p.Timeout)
		}
		return fmt.Errorf("the proxy %s cannot be reached: %w", p.URL, e.Err)
	} else if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var answer struct{ Kind, APIVersion string }
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch kubernetes := err == nil && json.Unmarshal(body, &answer) == nil && answer.Kind != "" && answer.APIVersion != ""; {
	case resp.StatusCode/100 == 3:
		return fmt.Errorf("the proxy redirects %s to %.200s: it does not know --identity %s; what its login gives is --identity %s=cookie:NAME=VALUE", at, resp.Header.Get("Location"), who.Name, who.Name)
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden && !kubernetes:
		return fmt.Errorf("the proxy does not know --identity %s: it answers %d: %.200q", who.Name, resp.StatusCode, body)
	case kind == "text/html":
		return fmt.Errorf("%s is answered %d with HTML, not by a Kubernetes API: --api-prefix says where the API is below the URL", at, resp.StatusCode)
	case !kubernetes:
		return fmt.Errorf("%s is answered %d by something that is not a Kubernetes API: %.200q (--api-prefix says where the API is below the URL)", at, resp.StatusCode, body)
	}
	return nil
}

// fileTrail reads the audit log of a cluster that runs, from its present end on.
func (p *Proxy) fileTrail() (auditTrail, error) {
	cluster, err := existing.Open(p.Kubeconfig, p.Context, "")
	if err != nil {
		return auditTrail{}, &usage.Error{Problem: "--kubeconfig " + err.Error()}
	}
	info, err := os.Stat(p.AuditLog)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", p.AuditLog)
	}
	if err != nil {
		return auditTrail{}, &usage.Error{Problem: "--audit-log: " + err.Error()}
	}
	client, err := kubernetes.NewForConfig(cluster.Admin())
	from := info.Size()
	return auditTrail{
		send: func(ctx context.Context, marker string) error { return mark(ctx, client, p.Namespace, marker) },
		look: func(texts ...string) ([]json.RawMessage, error) { return linesWith(p.AuditLog, from, texts) },
		// An API server that writes in batches does so every 30 s at the latest.
		timeout: 35 * time.Second,
	}, err
}

// linesWith are the whole lines of a file with one of the texts, from an offset on, or all if it has become shorter.
func linesWith(path string, from int64, texts []string) (out []json.RawMessage, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || info.Size() >= from {
		if _, err := f.Seek(from, io.SeekStart); err != nil {
			return nil, err
		}
	}
	data, err := io.ReadAll(f)
	for line := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) {
		if slices.ContainsFunc(texts, func(text string) bool { return bytes.Contains(line, []byte(text)) }) {
			out = append(out, bytes.TrimSpace(line))
		}
	}
	return out, err
}

// mark sends a request past the proxy. Whether it is allowed does not matter.
func mark(ctx context.Context, client kubernetes.Interface, namespace, marker string) error {
	result := client.CoreV1().RESTClient().Get().AbsPath(podsIn(namespace)).Param("fieldSelector", "metadata.name="+marker).Do(ctx)
	var code int
	if result.StatusCode(&code); code != 0 {
		return nil
	}
	return fmt.Errorf("the cluster of the kubeconfig cannot be reached: %w", result.Error())
}

// run starts the proxy in a process group of its own, and waits until its URL answers. stop ends the group.
func (p *Proxy) run(ctx context.Context, plane *plane) (stop func() error, err error) {
	dir, err := plane.TempDir("proxy-")
	if err != nil {
		return nil, err
	}
	kubeconfig, err := plane.writeKubeconfig(dir)
	if err != nil {
		return nil, err
	}
	if p.answers(ctx) {
		return nil, &usage.Error{Problem: fmt.Sprintf("something answers at %s before --proxy-command was started: it would be judged in its place", p.URL)}
	}
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		return nil, err
	}
	cmd, ended, err := launch(p.Command, output, "KUBECONFIG="+kubeconfig)
	if err := errors.Join(err, output.Close()); err != nil {
		return nil, err
	}
	stop = func() error {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it has started too
		<-ended
		return os.RemoveAll(dir)
	}
	said := func() string {
		data, _ := os.ReadFile(output.Name())
		return string(data[max(0, len(data)-500):])
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, p.Timeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-ended:
			return false, &usage.Error{Problem: fmt.Sprintf("--proxy-command ended (%s) before %s answered: %q", cmd.ProcessState, p.URL, said())}
		default:
			return p.answers(ctx), nil
		}
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		err = &usage.Error{Problem: fmt.Sprintf("--proxy-command runs, and nothing answers at %s within %s (--timeout): %q", p.URL, p.Timeout, said())}
	}
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// launch starts a shell command in a process group of its own. The group waits on a pipe that this process has the other end
// of, and kills itself when that is closed: so it ends with this process however that ends, and what it has started too.
func launch(command string, output *os.File, env ...string) (cmd *exec.Cmd, ended chan struct{}, err error) {
	alive, hold, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd = exec.Command("/bin/sh", "-c", "(trap '' TERM; read -r _; kill -KILL 0) <&3 3<&- >/dev/null 2>&1 &\nexec 3<&-\n"+command) //nolint:noctx // it lives until it is stopped
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr, cmd.ExtraFiles = output, output, &syscall.SysProcAttr{Setpgid: true}, []*os.File{alive}
	if err := errors.Join(cmd.Start(), alive.Close()); err != nil {
		return nil, nil, errors.Join(err, hold.Close())
	}
	ended = make(chan struct{})
	go func() {
		_ = cmd.Wait()
		_ = hold.Close()
		close(ended)
	}()
	return cmd, ended, nil
}

func (p *Proxy) answers(ctx context.Context) bool {
	conn, err := dial(ctx, &url.URL{Scheme: "http", Host: p.at.url.Host}, nil, nil, "", attack{}.wait(), nil)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// open is the proxy, in front of a control plane for which it is started, or of the cluster that runs.
func (p *Proxy) open(ctx context.Context, plane *plane) (ep *endpoint, err error) {
	ep = p.at
	ep.close = func() error { return nil }
	if plane == nil {
		ep.trail, err = p.fileTrail()
	} else {
		ep.trail, ep.plane = plane.trail(), plane
		ep.close, err = p.run(ctx, plane)
	}
	if err != nil {
		return nil, err
	}
	if err = p.probe(ctx); err == nil {
		err = ep.trail.settle(ctx, newRun())
	}
	if err != nil {
		return nil, errors.Join(err, ep.close())
	}
	return ep, nil
}
