package run

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Population is who takes part in a run.
type Population struct {
	// Every one of DaemonSets has an agent on each of Nodes, which have PodsPerNode pods to ask for.
	Nodes       int `json:"nodes"`
	PodsPerNode int `json:"podsPerNode"`
	DaemonSets  int `json:"daemonSets"`
	// Requestors is how many pods send for all agents, 0 if each is a pod. All pods together have ServiceAccounts.
	Requestors      int `json:"requestors,omitempty"`
	ServiceAccounts int `json:"serviceAccounts"`
	// Arrivals is how requests are spread over time; an agent asks Every so often, or once a block.
	Arrivals string   `json:"arrivals"`
	Every    Duration `json:"every,omitempty"`
}

// String returns a line for people.
func (p Population) String() string {
	several := func(n int, noun string) string {
		if n != 1 {
			noun += "s"
		}
		return fmt.Sprint(n, " ", noun)
	}
	who := fmt.Sprintf(
		"%s (%s on %s)",
		several(p.Nodes*p.DaemonSets, "agent"),
		several(p.DaemonSets, "DaemonSet"),
		several(p.Nodes, "node"),
	)
	if p.Requestors > 0 {
		who = fmt.Sprintf("%s, for which %s", several(p.Nodes, "agent"), several(p.Requestors, "pod")+" send")
	}
	frequency := "once a block"
	if p.Every > 0 {
		frequency = "every " + time.Duration(p.Every).String()
	}
	return fmt.Sprintf("%s with %s; each asks %s (%s)", who, several(p.ServiceAccounts, "ServiceAccount"), frequency, p.Arrivals)
}

// DescribeAgents returns who took part and, where the blocks say it, how many agents sent requests, how often each.
func (r *Run) DescribeAgents() string {
	least, most, fewest, often := math.MaxInt, 0, math.MaxInt, 0
	for _, b := range r.Blocks {
		if p := b.Predicted; p != nil && p.Agents > 0 {
			least, most, fewest, often = min(least, p.Agents), max(most, p.Agents), min(fewest, p.Fewest), max(often, p.Most)
		}
	}
	text := r.Population.String()
	if most > 0 {
		text += fmt.Sprintf(
			". In a block of %s %s of %d asked, %s each",
			time.Duration(r.Blocks[0].Length),
			formatRange(least, most),
			r.Agents,
			formatTimes(fewest, often),
		)
	}
	return text
}

func formatTimes(low, high int) string {
	if high == 1 {
		return "once"
	}
	return formatRange(low, high) + " times"
}

func formatRange(low, high int) string {
	if low == high {
		return strconv.Itoa(low)
	}
	return fmt.Sprintf("%d to %d", low, high)
}
