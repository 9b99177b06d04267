package storm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/shard"
)

// question is what the recorder's process is asked, one at a time. answer is what it returns.
type (
	question struct {
		Kubeconfig recorder.Point   `json:",omitempty"`
		Since      *uint64          `json:",omitempty"`
		Users      []string         `json:",omitempty"`
		Count      *countingOptions `json:",omitempty"` // from now on, instead of keeping records
		Read       bool             `json:",omitempty"`
		Own        bool             `json:",omitempty"` // for the reviews of requests themselves
		Profile    bool             `json:",omitempty"` // a profile of itself from now on, until Profiled
		Profiled   bool             `json:",omitempty"`
	}
	answer struct {
		Kubeconfig []byte
		Mark       uint64
		Records    []recorder.Record
		Counted    tallies
		Own        map[string]run.OwnReview
		Profile    []byte
		CPU        time.Duration
		RSS        int64
		Error      string
	}
)

// ServeRecorder runs the recorder as a process until in ends, so that its cost is not taken for the generator's.
func ServeRecorder(_ context.Context, in io.Reader, out io.Writer) error {
	r, err := recorder.Start(recorder.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	counts, decoder, encoder := newReviews(time.Now(), 0), json.NewDecoder(in), json.NewEncoder(out)
	var profiled bytes.Buffer
	for {
		var q question
		if decoder.Decode(&q) != nil {
			return nil // whoever asks has ended
		}
		a := answer{Mark: r.Mark()}
		switch {
		case q.Kubeconfig != "":
			a.Kubeconfig = r.Kubeconfig(q.Kubeconfig)
		case q.Since != nil:
			a.Records = r.Since(*q.Since, q.Users...)
		case q.Count != nil:
			counts = newReviews(q.Count.Start, q.Count.Settle)
			r.Count(counts.counting(*q.Count, nil))
		case q.Read:
			a.Counted = counts.soFar()
		case q.Own:
			a.Own = counts.ownReviews()
		case q.Profile:
			profiled.Reset()
			err = pprof.StartCPUProfile(&profiled)
		case q.Profiled:
			pprof.StopCPUProfile()
			a.Profile = profiled.Bytes()
		}
		a.CPU, a.RSS = shard.Used(os.Getpid())
		if err := cmp.Or(err, r.Err()); err != nil {
			a.Error = err.Error()
		}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
}

type recorderProcess struct {
	link    *shard.Link
	timeout time.Duration // after which a process that does not answer is killed
	mu      sync.Mutex
	encoder *json.Encoder
	decoder *json.Decoder
	failed  error
}

// recorderTimeout is how long the recorder's process may take to answer.
const recorderTimeout = 30 * time.Second

// startRecorder starts the recorder's process, and returns when it has answered.
func startRecorder(ctx context.Context, command []string, timeout time.Duration) (*recorderProcess, error) {
	link, err := shard.Processes(command).Launch(ctx, 0, 1)
	if err != nil {
		return nil, fmt.Errorf("the recorder: %w", err)
	}
	p := &recorderProcess{link: link, timeout: timeout, encoder: json.NewEncoder(link.In), decoder: json.NewDecoder(link.Out)}
	p.Mark() // a program that is not the recorder does not answer
	if p.failed != nil {
		failed := fmt.Errorf("the recorder did not start: %w", p.failed)
		link.Kill()
		return nil, errors.Join(failed, p.close())
	}
	return p, nil
}

// ask asks the process. It returns nothing once the process has failed, and Err says why.
func (p *recorderProcess) ask(q question) (a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return a
	}
	kill := time.AfterFunc(p.timeout, p.link.Kill)
	defer kill.Stop()
	err := p.encoder.Encode(q)
	if err == nil {
		err = p.decoder.Decode(&a)
	}
	if err != nil {
		p.failed = fmt.Errorf("its process is gone, or did not answer within %s: %w", p.timeout, err)
	} else if a.Error != "" {
		p.failed = fmt.Errorf("%s", a.Error)
	}
	return a
}

func (p *recorderProcess) Mark() uint64 { return p.ask(question{}).Mark }

func (p *recorderProcess) Since(mark uint64, users ...string) []recorder.Record {
	return p.ask(question{Since: &mark, Users: users}).Records
}

// Reset implements server.Recording. In a storm nothing is kept that could be forgotten.
func (p *recorderProcess) Reset() {}

func (p *recorderProcess) Kubeconfig(point recorder.Point) []byte {
	return p.ask(question{Kubeconfig: point}).Kubeconfig
}

func (p *recorderProcess) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

func (p *recorderProcess) measureUse() (time.Duration, int64) {
	if p == nil {
		return 0, 0
	}
	a := p.ask(question{})
	return a.CPU, a.RSS
}

func (p *recorderProcess) close() error {
	kill := time.AfterFunc(10*time.Second, p.link.Kill)
	defer kill.Stop()
	_ = p.link.In.Close()
	_, _ = io.Copy(io.Discard, p.link.Out)
	return p.link.Wait()
}
