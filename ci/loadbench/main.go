// Command loadbench measures what authzconf's load generator itself costs and how exact it is, beside fortio and
// h2load on the same TLS HTTP/2 stub, in turns, and prints tables in Markdown. Peers that are not
// installed are left out; ci/bench-loadgen installs them.
package main

import (
	"cmp"
	"flag"
	"log"
	"os"
	"path/filepath"
	"slices"
)

// Work is what a generator is asked for.
type Work struct {
	URL         string
	CA          []byte
	Rate        int
	Connections int
	Seconds     int
	// Together has all connections send at the same moment, Rate/Connections times a second.
	Together bool
	// Log is a file for what h2load says of single requests.
	Log string
}

// The programs that this one starts itself as, each by its first argument.
const (
	asStub   = "stub"
	asAgents = "agents"
	asIdle   = "idle"
	asBare   = "bare"
)

func main() {
	repeats := flag.Int("repeats", 10, "how often each generator runs")
	bin := flag.String("bin", "", "folder of the peers' programs, beside PATH")
	w := Work{}
	flag.IntVar(&w.Rate, "rate", 1000, "requests per second")
	flag.IntVar(&w.Connections, "connections", 100, "connections")
	flag.IntVar(&w.Seconds, "seconds", 5, "length of a run")
	idle := flag.Int("idle", 2000, "idle agents whose memory is measured")
	many := flag.Int("many", 10_000, "agents of a large storm whose memory is measured, 0 for none")
	flag.Parse()
	var err error
	switch flag.Arg(0) {
	case asStub:
		err = stub()
	case asAgents:
		err = agents(false)
	case asIdle:
		err = agents(true)
	case asBare:
		err = bareConnections()
	default:
		if *bin != "" {
			err = os.Setenv("PATH", *bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
		}
		if err == nil {
			b := &bench{work: w, repeats: *repeats, idle: *idle, many: *many}
			err = b.all(os.Stdout)
		}
	}
	if err != nil {
		log.Fatal(err)
	}
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.SortedFunc(slices.Values(list), cmp.Compare[float64])
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}
