package vectors

import "github.com/authzconf/authzconf/verdicts"

// Result is what came of a vector. Not supported says nothing about the subject.
type Result struct {
	Verdict verdicts.Verdict
	// Why are the reasons, which may have several lines each; a vector that passed may have some, too.
	Why []string
}
