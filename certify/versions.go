package certify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// reviewVersions is the flag with the versions of SubjectAccessReview that are asked.
type reviewVersions []string

// register adds the flag.
func (v *reviewVersions) register(fs *pflag.FlagSet) {
	fs.StringSliceVar(
		(*[]string)(v),
		"review-versions",
		[]string{"v1", "v1beta1"},
		"versions of SubjectAccessReview that are asked, for an authorizer that does not serve both; the report says which",
	)
}

// check returns why these versions cannot be asked.
func (v reviewVersions) check() error {
	isUnknown := func(version string) bool { return version != "v1" && version != "v1beta1" }
	if !slices.Contains(v, "v1") || slices.ContainsFunc(v, isUnknown) {
		return fmt.Errorf("--review-versions %s: expected v1, or v1,v1beta1", strings.Join(v, ","))
	}
	return nil
}

// isV1Only reports whether v1beta1 is left out.
func (v reviewVersions) isV1Only() bool { return !slices.Contains(v, "v1beta1") }

// ForVersions returns a plan of level safe for an authorizer that serves the given versions of SubjectAccessReview: v1,
// v1beta1, or both. No version means both.
func (b *Plan) ForVersions(versions ...string) (*Plan, error) {
	for _, version := range versions {
		if version != "v1" && version != "v1beta1" {
			return nil, fmt.Errorf("%q is not a version of SubjectAccessReview: expected v1, v1beta1, or both", version)
		}
	}
	switch {
	case len(versions) == 0:
		return b, nil
	case !slices.Contains(versions, "v1"):
		return b.inV1beta1()
	case !slices.Contains(versions, "v1beta1"):
		return b.withoutV1beta1(), nil
	}
	return b, nil
}

// inV1beta1 returns the plan with every question in v1beta1, for an authorizer that serves nothing else. API servers
// whose webhook is configured by flags ask in v1beta1 by default. A question that was asked in both versions is asked
// once. Fields that nobody knows yet are left out, because v1beta1 will get no newer fields.
func (b *Plan) inV1beta1() (*Plan, error) {
	out := *b
	out.plainForm = v1beta1
	var questions []Question
	for _, v := range b.all {
		switch v.Form {
		case "":
			v.Form = v1beta1
		case v1beta1, unknownFields:
			continue
		}
		questions = append(questions, v)
	}
	out.setQuestions(nil, questions)
	return &out, out.seal()
}
