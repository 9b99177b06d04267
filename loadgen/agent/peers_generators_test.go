package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// generator is one of the programs, and how it is asked to send.
type generator struct {
	title string
	// program is a peer's name, or one of the test binary's own.
	program string
	own     bool
	// together says that its connections send at the same moment.
	together bool
	// env is added to the environment.
	env   []string
	args  func(w work) []string
	parse func(w work, out []byte) (result, error)
}

func own(title, program string, together bool) generator {
	return generator{title: title, program: program, own: true, together: together, parse: func(_ work, out []byte) (r result, err error) {
		return r, json.Unmarshal(out, &r)
	}}
}

func fortio(title string, flags ...string) generator {
	return generator{title: title, program: "fortio", together: len(flags) == 0, parse: parseFortio, args: func(w work) []string {
		return append(append([]string{"load", "-h2", "-k", "-quiet", "-json", "-", "-p", "50,99"}, flags...),
			"-qps", strconv.Itoa(w.Rate), "-c", strconv.Itoa(w.Connections), "-t", fmt.Sprintf("%ds", w.Seconds), w.URL+"/")
	}}
}

// generators are what is compared. By default, fortio's and h2load's connections all send at the same moment,
// which costs less than a constant rate does.
func generators() []generator {
	one := own("authzconf, GOMAXPROCS=1", asAgents, false)
	one.env = []string{"GOMAXPROCS=1"}
	return []generator{
		own("authzconf", asAgents, false),
		one,
		own("authzconf, at once", asAgents, true),
		fortio("fortio -uniform", "-uniform"),
		fortio("fortio"),
		{title: "h2load", program: "h2load", together: true, parse: parseH2load, args: func(w work) []string {
			list := []string{"-c", strconv.Itoa(w.Connections), "--rps", strconv.Itoa(w.Rate / w.Connections), "-D", strconv.Itoa(w.Seconds)}
			if w.Log != "" {
				list = append(list, "--log-file="+w.Log)
			}
			return append(list, w.URL+"/")
		}},
	}
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

// withStub gives f a stub of its own.
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
		err = f(w)
	}
	_ = in.Close()
	return errors.Join(err, server.Wait())
}

// once runs a generator against a stub of its own. A third into a run with a stall, the stub stands still for a
// second.
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
	if err != nil {
		err = fmt.Errorf("%s: %w", g.title, err)
	}
	return r, err
}

// start runs a generator's program, whose processor time alone counts.
func start(g generator, w work) (r result, err error) {
	var cmd *exec.Cmd
	if g.own {
		self, err := os.Executable()
		if err != nil {
			return r, err
		}
		in, err := json.Marshal(w)
		if err != nil {
			return r, err
		}
		cmd = exec.CommandContext(context.Background(), self)
		cmd.Env = append(append(os.Environ(), programEnv+"="+g.program), g.env...)
		cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	} else {
		cmd = exec.CommandContext(context.Background(), g.program, g.args(w)...) // stderr has only progress
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
