package certify

// Certification is what the answers of a run show.
type Certification struct {
	Seed int64
	// Mode is how the authorizer was reached, and Wire the revision of KEP-5681's wire, for conditional authorizers.
	Mode, Wire string
	// SuiteDigest is that of all that was to be asked, PolicyDigest that of the policy as JSON.
	SuiteDigest, PolicyDigest string
	// ReviewVersions are those that were asked, if not all.
	ReviewVersions []string
	// Levels are those that are granted; Results say why the others are not.
	Levels   []CertificationLevel
	Results  []LevelResult
	Findings []Finding
	// Observation is how closely the authorizer was watched.
	Observation Observation
	// Cases are the parts of the levels, by the IDs that they have in a report.
	Cases map[string]CaseResult
}

// CaseResult is what the answers to one part of a level show.
type CaseResult struct {
	// Answered is how many questions were answered, of those planned.
	Answered, Planned int
	Findings          []Finding
	// Inconclusive says why nothing can be said although all was tried.
	Inconclusive string
	// Inapplicable says why the part is not about this authorizer. Then nothing was asked, and nothing is missing.
	Inapplicable string
}

// Grant fills in the levels that are granted by the results.
func (c *Certification) Grant() *Certification {
	c.Levels = nil
	for _, result := range c.Results {
		if result.Granted {
			c.Levels = append(c.Levels, result.Level)
		}
	}
	return c
}
