package profile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/loadgen/pacer"
)

// Adjust are changes of a profile for one run. Zero values change nothing.
type Adjust struct {
	Variants     []string
	Pairs        *int
	Agents       *int
	Rate         *float64
	Block        *time.Duration
	WebhookDelay *time.Duration
}

// Adjusted is the profile with the changes, checked again: a rate that makes a
// cold variant warm is an error here too.
func (p *Profile) Adjusted(a Adjust) (*Profile, error) {
	out := *p
	flags := map[string]string{}
	if a.Pairs != nil {
		out.Pairs, flags["$.pairs"] = *a.Pairs, "--pairs"
	}
	if a.Agents != nil {
		out.Agents, flags["$.agents"] = *a.Agents, "--agents"
	}
	if a.Block != nil {
		out.Block, flags["$.block"] = *a.Block, "--duration"
	}
	if a.WebhookDelay != nil {
		out.WebhookDelay, flags["$.webhookDelay"] = *a.WebhookDelay, "--webhook-delay"
	}
	if a.Rate != nil {
		if p.Arrivals.Kind == pacer.Burst || p.Arrivals.Closed || len(p.Arrivals.Stages) > 0 {
			return nil, fmt.Errorf("--rate %v: the profile %s has no single rate (bursts, stages or a closed loop)", *a.Rate, p.Name)
		}
		out.Arrivals.Rate, flags["$.arrivals.rate"] = *a.Rate, "--rate"
	}
	if out.Requestors > out.Agents && a.Agents != nil {
		out.Requestors = out.Agents
	}
	if len(a.Variants) > 0 {
		if err := out.keep(a.Variants); err != nil {
			return nil, err
		}
	}
	at := func(path string) string {
		if flag, ok := flags[path]; ok {
			return flag
		}
		return "profile " + p.Name + " with the given flags"
	}
	if err := out.Check(at); err != nil {
		return nil, err
	}
	return &out, nil
}

// keep leaves the comparisons between the named variants, and gives the A/A pair to
// the first of them if it had another.
func (p *Profile) keep(variants []string) error {
	used := p.Used()
	for _, name := range variants {
		if !slices.Contains(used, name) {
			return fmt.Errorf("--variants %s: the profile %s has %s", name, p.Name, quoted(used))
		}
	}
	kept, aa := []Comparison(nil), Comparison{}
	var first *Side
	for _, c := range p.Comparisons {
		if c.AA() {
			aa = c
		} else if slices.Contains(variants, c.A.Variant) && slices.Contains(variants, c.B.Variant) {
			kept = append(kept, c)
			if first == nil {
				first = &c.A
			}
		} else if slices.Contains(variants, c.A.Variant) && first == nil {
			first = &c.A
		} else if slices.Contains(variants, c.B.Variant) && first == nil {
			first = &c.B
		}
	}
	if !slices.Contains(variants, aa.A.Variant) && first != nil {
		aa.A, aa.B = *first, *first
	}
	p.Comparisons = append([]Comparison{aa}, kept...)
	p.Thresholds = slices.DeleteFunc(slices.Clone(p.Thresholds), func(t Threshold) bool { return !slices.Contains(p.Used(), t.Variant) })
	if len(kept) == 0 && len(variants) > 1 {
		return fmt.Errorf("--variants %s: the profile %s does not compare them with each other", strings.Join(variants, ","), p.Name)
	}
	return nil
}
