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
	fs.StringSliceVar((*[]string)(v), "review-versions", []string{"v1", "v1beta1"}, "versions of SubjectAccessReview that are asked; v1 alone for an authorizer that serves only that, which the report says")
}

// check returns why the versions cannot be asked.
func (v reviewVersions) check() error {
	isUnknown := func(version string) bool { return version != "v1" && version != "v1beta1" }
	if !slices.Contains(v, "v1") || slices.ContainsFunc(v, isUnknown) {
		return fmt.Errorf("--review-versions %s: expected v1, or v1,v1beta1", strings.Join(v, ","))
	}
	return nil
}

// isV1Only reports whether v1beta1 is left out.
func (v reviewVersions) isV1Only() bool { return !slices.Contains(v, "v1beta1") }
