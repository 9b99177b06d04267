package predict

import "math"

// periodicTimes has the times at which something is asked for, in seconds: count times at even distances, and the same again in
// every period.
type periodicTimes struct {
	count       int
	gap, period float64
}

// newPeriodicTimes returns the times of count requests that are spread evenly over a part of a period.
func newPeriodicTimes(count int, over, period float64) periodicTimes {
	return periodicTimes{count: count, gap: over / float64(count), period: period}
}

// newSingle returns the time of something that is asked for once in a period.
func newSingle(period float64) periodicTimes { return newPeriodicTimes(1, period, period) }

// findNext returns the first time at or after t.
func (c periodicTimes) findNext(t float64) float64 {
	cycle := math.Floor(t / c.period)
	i := math.Ceil((t-cycle*c.period)/c.gap - tiny)
	if i >= float64(c.count) {
		cycle, i = cycle+1, 0
	}
	return cycle*c.period + i*c.gap
}

// tiny is the part of a distance by which two times may differ and still count as the same.
const tiny = 1e-9

// countBetween returns how often it is asked for from one time on, and before another.
func (c periodicTimes) countBetween(from, to float64) int {
	return c.countBefore(to) - c.countBefore(from)
}

func (c periodicTimes) countBefore(t float64) int {
	cycle := math.Floor(t / c.period)
	i := math.Ceil((t-cycle*c.period)/c.gap - tiny)
	return int(cycle)*c.count + min(c.count, int(i))
}

// rate returns how often a second it is asked for.
func (c periodicTimes) rate() float64 { return float64(c.count) / c.period }

// touchedPart returns the part of many such combs, evenly spread, that is asked for in a time.
func (c periodicTimes) touchedPart(time float64) float64 {
	reach := time + float64(c.count-1)*c.gap
	return min(1, min(float64(c.count)*time, reach)/c.period)
}

// memory is how long something is remembered, in seconds. It is remembered for life from when it is answered, which
// takes pending, and only if it is asked for again before idle has passed.
type memory struct{ pending, life, idle float64 }

// misses is how often per second something is asked for that is not remembered, and how many ask for it together.
type misses struct{ rate, together float64 }

// findMisses returns how often something that is asked for at these times is not remembered. It steps from one time at which
// it is forgotten to the next, until it reaches one of the times of a period for the second time.
func (c periodicTimes) findMisses(m memory) misses {
	if c.gap >= m.idle {
		return misses{c.rate(), 1}
	}
	type visit struct {
		at    float64
		count int
	}
	seen := map[int]visit{}
	count, together, at := 0, 0, 0.0
	for {
		index := c.indexOf(at)
		if before, ok := seen[index]; ok {
			return misses{float64(count-before.count) / (at - before.at), float64(together)}
		}
		seen[index] = visit{at, count}
		together = max(1, c.countBetween(at, at+m.pending))
		count += together
		at = c.findNextMiss(at, together, m)
	}
}

// indexOf returns the index of a time within its period.
func (c periodicTimes) indexOf(at float64) int {
	return int(math.Round((at - math.Floor(at/c.period+tiny)*c.period) / c.gap))
}

// findNextMiss returns the next time at which it is asked for and not remembered, after a time at which it was asked
// together many times.
func (c periodicTimes) findNextMiss(at float64, together int, m memory) float64 {
	last := at
	for range together - 1 {
		last = c.findNext(last + c.gap/2)
	}
	next := c.findNext(last + m.pending + m.life)
	if pause := c.period - float64(c.count-1)*c.gap; pause >= m.idle {
		next = min(next, c.findNext((math.Floor(last/c.period+tiny)+1)*c.period))
	}
	return next
}
