package conformance

import (
	"math"
	"slices"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// reviewRow is one expected access review beside the observed one; either side may be missing.
type reviewRow struct {
	Want  *reviewSide
	Got   *reviewSide
	State rowState
	// AnyOrder marks a review of an unordered group.
	AnyOrder bool
}

// rowState says how the sides of a row compare.
type rowState string

const (
	rowSame    rowState = "same"
	rowDiffers rowState = "differs"
	rowMissing rowState = "missing"
	rowExtra   rowState = "extra"
)

// reviewSide is one side of a row.
type reviewSide struct {
	Decision scenarios.Decision
	Attrs    []reviewAttr
}

// reviewAttr is an attribute of a review. The value is empty where only the other side has one.
type reviewAttr struct {
	Name  string
	Value string
}

// review is a review of either side in the terms of an expectation, with the name of its subject.
type review struct {
	scenarios.Review
	user     string
	anyOrder bool
}

func (r review) attrs() []reviewAttr {
	api := r.Version
	if r.Group != "" {
		api = r.Group + "/" + r.Version
	}
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	extra := ""
	if len(r.Extra) > 0 {
		extra = scenarios.RenderExtra(r.Extra)
	}
	return []reviewAttr{
		{Name: "verb", Value: r.Verb},
		{Name: "resource", Value: resource},
		{Name: "api", Value: api},
		{Name: "path", Value: r.Path},
		{Name: "name", Value: r.Name},
		{Name: "namespace", Value: r.Namespace},
		{Name: "fields", Value: r.FieldSelector},
		{Name: "labels", Value: r.LabelSelector},
		{Name: "user", Value: r.user},
		{Name: "extra", Value: extra},
	}
}

// distance says how much two reviews differ: what is asked weighs most, so that rows of a shifted transcript still meet.
func distance(a, b review) (d int) {
	x, y := a.attrs(), b.attrs()
	for i := range x {
		unjudged := x[i].Name == "extra" && a.Extra == nil
		if x[i].Value == y[i].Value || unjudged {
			continue
		}
		d++
		if x[i].Name == "verb" || x[i].Name == "resource" {
			d += 2
		}
	}
	if a.Decision != b.Decision {
		d++
	}
	return d
}

// wantedReviews flattens an expectation; bound is the scenario it is of.
func wantedReviews(st *scenarios.Step, requestor scenarios.Requestor) (want []review) {
	subject := func(by scenarios.By) string {
		if by == scenarios.ByImpersonated {
			return st.Request.WantedUser()
		}
		return requestor.Username()
	}
	for _, r := range st.Expect.Reviews {
		for _, one := range r.Unordered {
			want = append(want, review{Review: one, user: subject(one.By), anyOrder: true})
		}
		if len(r.Unordered) == 0 {
			want = append(want, review{Review: r, user: subject(r.By)})
		}
	}
	return want
}

// alignReviews puts expected and seen reviews side by side. Lists of the same length are compared in order, as
// the judge does; otherwise rows are chosen so that as little as possible differs.
func alignReviews(want, got []review) (rows []reviewRow) {
	gap := gapCost
	if len(want) == len(got) {
		got, gap = matchUnordered(want, got), math.MaxInt16
	}
	at := func(list []review, i int) *review {
		if i < 0 {
			return nil
		}
		return &list[i]
	}
	align(len(want), len(got), gap, func(i, j int) int { return distance(want[i], got[j]) },
		func(i, j int) { rows = append(rows, pairReviews(at(want, i), at(got, j))) })
	return rows
}

// matchUnordered reorders the seen reviews of each unordered group so that they stand beside those they match best.
func matchUnordered(want, got []review) []review {
	got = slices.Clone(got)
	for i := range want {
		if !want[i].anyOrder {
			continue
		}
		best := i
		for j := i; j < len(got) && want[j].anyOrder; j++ {
			if distance(want[i], got[j]) < distance(want[i], got[best]) {
				best = j
			}
		}
		got[i], got[best] = got[best], got[i]
	}
	return got
}

// gapCost is what a row with one side costs: less than two reviews with nothing in common, more than two that nearly
// agree.
const gapCost = 3

// align puts lists of n and m side by side at the least cost of pairs and gaps, at which the other index is -1.
func align(n, m, gap int, pair func(i, j int) int, visit func(i, j int)) {
	cost := make([][]int, n+1) // cost[i][j]: of what is behind i and j
	for i := n; i >= 0; i-- {
		cost[i] = make([]int, m+1)
		for j := m; j >= 0; j-- {
			cost[i][j] = (n - i + m - j) * gap
			if i < n && j < m {
				cost[i][j] = min(cost[i+1][j+1]+pair(i, j), cost[i+1][j]+gap, cost[i][j+1]+gap)
			}
		}
	}
	for i, j := 0, 0; i < n || j < m; {
		switch {
		case i < n && j < m && cost[i][j] == cost[i+1][j+1]+pair(i, j):
			visit(i, j)
			i, j = i+1, j+1
		case i < n && cost[i][j] == cost[i+1][j]+gap:
			visit(i, -1)
			i++
		default:
			visit(-1, j)
			j++
		}
	}
}

// pairReviews makes a row; attributes that are empty on both sides are left out.
func pairReviews(want, got *review) reviewRow {
	switch {
	case want == nil:
		return reviewRow{Got: aloneSide(got), State: rowExtra}
	case got == nil:
		return reviewRow{Want: aloneSide(want), State: rowMissing, AnyOrder: want.anyOrder}
	}
	row := reviewRow{
		Want:     &reviewSide{Decision: want.Decision},
		Got:      &reviewSide{Decision: got.Decision},
		State:    rowSame,
		AnyOrder: want.anyOrder,
	}
	if want.Decision != got.Decision {
		row.State = rowDiffers
	}
	w, g := want.attrs(), got.attrs()
	for i := range w {
		if isJudged := w[i].Name != "extra" || want.Extra != nil; !isJudged {
			continue
		}
		differs := w[i].Value != g[i].Value
		if differs {
			row.State = rowDiffers
		}
		if differs || w[i].Value != "" {
			row.Want.Attrs = append(row.Want.Attrs, w[i])
			row.Got.Attrs = append(row.Got.Attrs, g[i])
		}
	}
	return row
}

// aloneSide returns a review that has nothing beside it.
func aloneSide(r *review) *reviewSide {
	attrs := seq.Filter(r.attrs(), func(a reviewAttr) bool { return a.Value != "" && a.Name != "extra" })
	return &reviewSide{Decision: r.Decision, Attrs: attrs}
}
