package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// generator is one of the programs, with how it is told to send.
type generator struct {
	title string
	// program is the name of a peer, or of a program in the test binary. binary is another build of the test binary.
	program, binary string
	own             bool
	// together means that its connections send at the same moment.
	together bool
	// env is added to the environment.
	env []string
	// args may write files to w.Dir.
	args  func(w work) ([]string, error)
	parse func(w work, out []byte) (result, error)
}

func own(title, program string, together bool, env ...string) generator {
	return generator{
		title:    title,
		program:  program,
		own:      true,
		together: together,
		env:      env,
		parse: func(_ work, out []byte) (r result, err error) {
			return r, json.Unmarshal(out, &r)
		},
	}
}

// oneProcessor makes a program run as a shard that is a process does.
const oneProcessor = "GOMAXPROCS=1"

func fortio(title string, flags ...string) generator {
	return generator{title: title, program: "fortio", together: len(flags) == 0, parse: parseFortio, args: func(w work) ([]string, error) {
		list := append([]string{"load", "-h2", "-cacert", w.caFile(), "-quiet", "-json", "-", "-p", "50,99", "-timeout", "10s"}, flags...)
		return append(append(list, w.headers("-H")...),
			"-qps", strconv.Itoa(w.Rate), "-c", strconv.Itoa(w.Connections), "-t", fmt.Sprintf("%ds", w.Seconds), w.address()), nil
	}}
}

// h2load has connections begin one after the other, each with a timing script, so that all together send at a constant
// rate, or it has all of them send at the same moment. It cannot verify a certificate.
func h2load(title string, together bool) generator {
	return generator{title: title, program: "h2load", together: together, parse: parseH2load, args: func(w work) ([]string, error) {
		list := append([]string{"-c", strconv.Itoa(w.Connections)}, w.headers("-H")...)
		if w.Log != "" {
			list = append(list, "--log-file="+w.Log)
		}
		if together {
			return append(list, "--rps", strconv.Itoa(w.Rate/w.Connections), "-D", strconv.Itoa(w.Seconds), w.address()), nil
		}
		pause, script := time.Duration(w.Connections)*time.Second/time.Duration(w.Rate), &strings.Builder{}
		for at := time.Duration(0); at < time.Duration(w.Seconds)*time.Second; at += pause {
			fmt.Fprintf(script, "%.3f\t%s\n", float64(at)/float64(time.Millisecond), w.address())
		}
		// A script begins when its connection does. Connections begin far enough apart for a handshake. The number of
		// pauses between them has no common divisor with their number, so that they send at different places of the
		// pause between two requests.
		each := max(1, (w.Rate+99)/100)
		for new(big.Int).GCD(nil, nil, big.NewInt(int64(each)), big.NewInt(int64(w.Connections))).Int64() != 1 {
			each++
		}
		file := filepath.Join(w.Dir, "timing")
		return append(list, "-r", "1", fmt.Sprintf("--rate-period=%dms", max(1, 1000*each/w.Rate)), "--timing-script-file="+file), os.WriteFile(file, []byte(script.String()), 0o600)
	}}
}

// k6 sends at a constant rate, each of its users on a connection of its own.
func k6() generator {
	return generator{title: "k6", program: "k6", parse: parseK6, args: func(w work) ([]string, error) {
		options, err := json.Marshal(map[string]any{
			"scenarios": map[string]any{"s": map[string]any{
				"executor": "constant-arrival-rate", "rate": w.Rate, "timeUnit": "1s", "duration": fmt.Sprintf("%ds", w.Seconds),
				"preAllocatedVUs": w.Connections, "maxVUs": w.Connections, "gracefulStop": "10s",
			}},
			"summaryTrendStats": []string{"p(99)"}, "discardResponseBodies": true,
		})
		if err != nil {
			return nil, err
		}
		headers := map[string]string{}
		for name, values := range w.Header {
			headers[name] = values[0]
		}
		params, err := json.Marshal(map[string]any{"headers": headers})
		if err != nil {
			return nil, err
		}
		file := filepath.Join(w.Dir, "k6.js")
		return []string{"run", "--quiet", "--no-usage-report", "--no-color", file}, os.WriteFile(file, fmt.Appendf(nil, k6Script, options, params, w.address()), 0o600)
	}}
}

const k6Script = `import http from 'k6/http';
import { Counter } from 'k6/metrics';
const ok = new Counter('ok');
export const options = %s;
const params = %s;
export default function () { if (http.get(%q, params).status === 200) { ok.add(1); } }
export function handleSummary(d) {
	return { stdout: JSON.stringify({ ok: d.metrics.ok ? d.metrics.ok.values.count : 0, p99: d.metrics.http_req_duration.values['p(99)'] }) };
}
`

// generators returns what is compared. By default the connections of fortio and h2load all send at the same moment,
// which costs less than a constant rate.
func generators() []generator {
	list := []generator{own("authzconf", asAgents, false, oneProcessor), own("authzconf, all processors", asAgents, false)}
	if name, binary, ok := strings.Cut(*also, "="); ok {
		g := own(name, asAgents, false, oneProcessor)
		g.binary = binary
		list = append(list, g)
	}
	return append(list, fortio("fortio -uniform", "-uniform"), h2load("h2load, timing script", false), k6(),
		own("authzconf, at once", asAgents, true, oneProcessor), fortio("fortio"), h2load("h2load", true))
}

// installed are the generators that are there.
func installed() (list []generator, missing []string) {
	for _, g := range generators() {
		if _, err := exec.LookPath(g.program); err != nil && !g.own {
			missing = append(missing, g.title)
			continue
		}
		list = append(list, g)
	}
	return list, missing
}

// rotated returns the generators in the order of a turn. Each comes first, and after each other one, equally often.
func rotated(list []generator, turn int) []generator {
	turn %= len(list)
	return slices.Concat(list[turn:], list[:turn])
}

// withStub calls f with a stub of its own.
func withStub(w work, f func(w work) error) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	server := exec.CommandContext(context.Background(), self)
	server.Env = append(os.Environ(), programEnv+"="+asStub)
	server.Stderr = os.Stderr
	in, err := server.StdinPipe()
	if err != nil {
		return err
	}
	out, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	var up work
	if err = json.NewDecoder(out).Decode(&up); err == nil {
		w.URL, w.CA = up.URL, up.CA
		if w.Dir, err = os.MkdirTemp("", "loadbench"); err == nil {
			err = errors.Join(os.WriteFile(w.caFile(), w.CA, 0o600), f(w), os.RemoveAll(w.Dir))
		}
	}
	_ = in.Close()
	return errors.Join(err, server.Wait())
}

// once runs a generator against a stub of its own. In a run with a stall, the stub stands still for a second after a
// third of the run.
func once(g generator, w work, stall bool) (r result, err error) {
	w.Together = g.together
	err = withStub(w, func(w work) error {
		stalled := make(chan error, 1)
		if stall {
			time.AfterFunc(time.Duration(w.Seconds)*time.Second/3, func() {
				_, err := ask(w, "/stall")
				stalled <- err
			})
		}
		if r, err = start(g, w); err != nil || !stall {
			return err
		}
		if err := <-stalled; err != nil {
			return err
		}
		text, err := ask(w, "/p99")
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &r.ServerP99)
	})
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: …%s", err, failed.Stderr[max(0, len(failed.Stderr)-500):])
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", g.title, err)
	}
	return r, err
}

// start runs the program of a generator. Only its processor time counts.
func start(g generator, w work) (r result, err error) {
	var cmd *exec.Cmd
	if g.own {
		in, err := json.Marshal(w)
		if err != nil {
			return r, err
		}
		if g.binary == "" {
			if g.binary, err = os.Executable(); err != nil {
				return r, err
			}
		}
		cmd = exec.CommandContext(context.Background(), g.binary)
		cmd.Env = append(append(os.Environ(), programEnv+"="+g.program), g.env...)
		cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	} else {
		args, err := g.args(w)
		if err != nil {
			return r, err
		}
		cmd = exec.CommandContext(context.Background(), g.program, args...) // stderr has only progress
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+w.caFile())         // whom k6 trusts
	}
	text, err := cmd.Output()
	if err != nil {
		return r, err
	}
	if r, err = g.parse(w, text); err != nil {
		return r, err
	}
	r.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r, nil
}
