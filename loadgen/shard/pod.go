package shard

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/loadgen/run"
)

const (
	// orderVariable is the variable with the order of a pod's only block, in JSON, with its start and its seed.
	orderVariable = "AUTHZCONF_ORDER"
	// IndexVariable is the variable in which an Indexed Job tells a pod its index (k8s.io/api/batch/v1,
	// CompletionMode).
	IndexVariable = "JOB_COMPLETION_INDEX"
)

// message is a line of a shard's log. The first says that the shard is ready, and the second has its block.
type message struct {
	// Ready says how the shard's clock compares with the API server's.
	Ready *clockReading `json:"ready,omitempty"`
	// Block is a run.Block as pack writes it, in base64.
	Block string `json:"block,omitempty"`
}

// clockReading is by how much a clock is ahead of the API server's.
type clockReading struct {
	Offset      time.Duration `json:"offset"`
	Uncertainty time.Duration `json:"uncertainty"`
}

// Run runs a shard as a program. In a pod of an Indexed Job it sends the block of the order in its environment.
// Elsewhere it serves the process that started it, by Serve.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	order, isPod := os.LookupEnv(orderVariable)
	if !isPod {
		return Serve(ctx, in, out)
	}
	return runPod(ctx, order, os.Getenv(IndexVariable), planFolder, out)
}

// runPod sends the shard's part of the only block of a pod, writes what it counted to its log, and stays until it is
// told to end. A pod that ends makes its node and the controllers write its status, while the coordinator still reads
// the counts of the API server.
func runPod(ctx context.Context, orderText, index, folder string, out io.Writer) error {
	var o Order
	if err := json.Unmarshal([]byte(orderText), &o); err != nil {
		return fmt.Errorf("%s: %w", orderVariable, err)
	}
	job, err := readPlan(folder)
	if err != nil {
		return err
	}
	if job.Index, err = strconv.Atoi(index); err != nil {
		return fmt.Errorf("%s: %w", IndexVariable, err)
	}
	limitProcessors(&job.Profile)
	w, err := NewWorker(job)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	if err := w.Open(ctx); err != nil {
		return err
	}
	clock, err := compareWithServer(ctx, job, o)
	if err != nil {
		return err
	}
	if err := say(out, message{Ready: clock}); err != nil {
		return err
	}
	if delay := time.Until(o.Start); delay < 0 && !o.WarmUp {
		return fmt.Errorf("it was ready %s after the block was to start", (-delay).Round(time.Millisecond))
	}
	block, err := w.Block(ctx, o)
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return errors.New("it was told to end while the block ran")
	}
	_, block.GeneratorRSS = Used(os.Getpid())
	if err := sayBlock(out, block); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// compareWithServer compares this process's clock with that of the first API server of the server that an order is
// about.
func compareWithServer(ctx context.Context, job Job, o Order) (*clockReading, error) {
	server := job.Servers[o.Side.Server]
	clock, err := compareClock(ctx, &rest.Config{Host: server.hostOf(0), TLSClientConfig: rest.TLSClientConfig{CAData: server.CA}})
	if err != nil {
		return nil, fmt.Errorf("comparing clocks with %s: %w", o.Side.Server, err)
	}
	return &clock, nil
}

// maxLogBytes is less than a kubelet keeps of a container's log in one file (containerLogMaxSize, 10 MiB by default).
const maxLogBytes = 8 << 20

func sayBlock(out io.Writer, block *run.Block) error {
	data, err := pack(block)
	if err != nil {
		return err
	}
	text := base64.StdEncoding.EncodeToString(data)
	if len(text) > maxLogBytes {
		return fmt.Errorf(
			"what it counted is %d bytes, and a log takes %d: expected more shards, or shorter blocks",
			len(text),
			maxLogBytes,
		)
	}
	return say(out, message{Block: text})
}

func say(out io.Writer, m message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = out.Write(append(line, '\n'))
	return err
}

// readBlock reads the block of a message.
func readBlock(text string) (*run.Block, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	var block run.Block
	return &block, unpack(data, &block)
}
