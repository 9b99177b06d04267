package conformance

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/scenarios"
)

// rv is "verb resource name", anyOrder with a leading "~".
func rv(text string) review {
	anyOrder := strings.HasPrefix(text, "~")
	f := append(strings.Fields(strings.TrimPrefix(text, "~")), "", "")
	return review{
		Review:   scenarios.Review{Verb: f[0], Resource: f[1], Name: f[2], Decision: scenarios.Allow},
		user:     "u",
		anyOrder: anyOrder,
	}
}

func rvs(texts ...string) []review {
	var list []review
	for _, t := range texts {
		list = append(list, rv(t))
	}
	return list
}

func TestAlignReviews(t *testing.T) {
	for _, c := range []struct {
		name      string
		want, got []review
		rows      string // "verb/verb state", - for an empty side
	}{
		{"none", nil, nil, ""},
		{"same", rvs("a x", "b x"), rvs("a x", "b x"), "a/a same, b/b same"},
		{"one attribute differs", rvs("a x n", "b x"), rvs("a x m", "b x"), "a/a differs, b/b same"},
		{"same length goes by order", rvs("a x", "b x"), rvs("b x", "a x"), "a/b differs, b/a differs"},
		{"first missing", rvs("a x", "b x", "c x"), rvs("b x", "c x"), "a/- missing, b/b same, c/c same"},
		{"middle extra", rvs("a x", "c x"), rvs("a x", "b x", "c x"), "a/a same, -/b extra, c/c same"},
		{"missing and different", rvs("a x", "b x n", "c x"), rvs("b x m", "c x"), "a/- missing, b/b differs, c/c same"},
		{"nothing seen", rvs("a x"), nil, "a/- missing"},
		{"nothing expected", nil, rvs("a x"), "-/a extra"},
		{"any order", rvs("a x", "~b x 1", "~b x 2", "c x"), rvs("a x", "b x 2", "b x 1", "c x"), "a/a same, b/b same, b/b same, c/c same"},
		{"any order ends with its group", rvs("~b x 1", "b x 2"), rvs("b x 2", "b x 1"), "b/b differs, b/b differs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rows []string
			for _, r := range alignReviews(c.want, c.got) {
				rows = append(rows, verbOf(r.Want)+"/"+verbOf(r.Got)+" "+string(r.State))
			}
			if got := strings.Join(rows, ", "); got != c.rows {
				t.Errorf("got  %s\nwant %s", got, c.rows)
			}
		})
	}
}

func verbOf(s *reviewSide) string {
	if s == nil {
		return "-"
	}
	return s.Attrs[0].Value
}

// TestPairReviews shows attributes that either side has, and nothing that is not judged.
func TestPairReviews(t *testing.T) {
	want, got := rv("get pods web"), rv("get pods")
	got.Namespace, got.Extra = "shop", map[string][]string{"scopes": {"view"}}
	row := pairReviews(&want, &got)
	if row.State != rowDiffers {
		t.Errorf("state %s", row.State)
	}
	if text := row.Want.text(); text != "allow: verb get, resource pods, name web, namespace (none), user u" {
		t.Errorf("expected: %s", text)
	}
	if text := row.Got.text(); text != "allow: verb get, resource pods, name (none), namespace shop, user u" {
		t.Errorf("observed: %s", text)
	}
}
