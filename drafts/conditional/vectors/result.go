package vectors

import "github.com/authzconf/authzconf/verdicts"

// Result is the verdict on a subject by one vector. A vector with the verdict not supported says nothing about the
// subject.
type Result struct {
	Verdict verdicts.Verdict
	// Why has the reasons, which may have several lines each. A vector that passed may have reasons, too.
	Why []string
}
