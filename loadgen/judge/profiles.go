package judge

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/authzconf/authzconf/loadgen/run"
)

// FunctionShare is how often a program was in a function, as a part of the samples of its CPU profile on each side.
type FunctionShare struct {
	Function string  `json:"function"`
	A        float64 `json:"a"`
	B        float64 `json:"b"`
}

// ProfileDifference is what a program does differently on the two sides of a comparison.
type ProfileDifference struct {
	Program string `json:"program"`
	// SamplesA and SamplesB are how many samples the profiles have. There are 100 for each second of processor time.
	SamplesA int64 `json:"samplesA"`
	SamplesB int64 `json:"samplesB"`
	// Top are the functions with the most samples on both sides. Differ are those whose shares differ most, by more
	// than chance.
	Top    []FunctionShare `json:"top"`
	Differ []FunctionShare `json:"differ,omitempty"`
}

const (
	shownFunctions = 8
	// leastSamples is the smallest number of samples with which the share of a function says something. A share of a
	// half is then typically 5 % off.
	leastSamples = 100
	// surely is by how many standard errors a share has to differ, because there are a hundred shares.
	surely = 4
)

// compareProfiles compares the profiles of the last pair that has some on both sides.
func compareProfiles(pairs []pair) (list []ProfileDifference) {
	for _, p := range slices.Backward(pairs) {
		for _, program := range slices.Sorted(maps.Keys(p.a[0].Profiles)) {
			a, b := p.a[0].Profiles[program], p.b.Profiles[program]
			if min(a.Samples, b.Samples) >= leastSamples {
				list = append(list, compareProfile(program, a, b))
			}
		}
		if len(list) > 0 {
			break
		}
	}
	return list
}

// compareProfile returns the functions in which a program was, and those whose shares differ by more than chance.
func compareProfile(program string, a, b run.CPUProfile) ProfileDifference {
	d := ProfileDifference{Program: program, SamplesA: a.Samples, SamplesB: b.Samples}
	n, m := float64(a.Samples), float64(b.Samples)
	sum := run.Sum(maps.Clone(a.Functions), b.Functions)
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		share := FunctionShare{name, float64(a.Functions[name]) / n, float64(b.Functions[name]) / m}
		d.Top = append(d.Top, share)
		part := float64(sum[name]) / (n + m)
		standardError := math.Sqrt(part * (1 - part) * (1/n + 1/m))
		if math.Abs(share.B-share.A) > surely*standardError {
			d.Differ = append(d.Differ, share)
		}
	}
	slices.SortStableFunc(d.Top, func(x, y FunctionShare) int { return cmp.Compare(y.A+y.B, x.A+x.B) })
	slices.SortStableFunc(d.Differ, func(x, y FunctionShare) int { return cmp.Compare(math.Abs(y.B-y.A), math.Abs(x.B-x.A)) })
	d.Top, d.Differ = d.Top[:min(len(d.Top), shownFunctions)], d.Differ[:min(len(d.Differ), shownFunctions)]
	return d
}
