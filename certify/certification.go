package certify

// Certification is what the answers of a run show.
type Certification struct {
	Seed int64
	// Mode is how the authorizer was reached. Wire is the revision of the wire format of KEP-5681, for conditional
	// authorizers.
	Mode, Wire string
	// SuiteDigest is the digest of everything that was to be asked. PolicyDigest is the digest of the policy as JSON.
	SuiteDigest, PolicyDigest string
	// ReviewVersions are the versions that were asked, if not all of them were.
	ReviewVersions []string
	// Levels are the levels that are granted. Results say why the others are not.
	Levels   []CertificationLevel
	Results  []LevelResult
	Findings []Finding
	// Observation is how closely the authorizer was watched.
	Observation Observation
	// Cases are the parts of the levels, by their IDs in a report.
	Cases map[string]CaseResult
}

// CaseResult is what the answers to one part of a level show.
type CaseResult struct {
	// Answered is how many of the planned questions were answered.
	Answered, Planned int
	Findings          []Finding
	// Inconclusive says why nothing can be said although everything was tried.
	Inconclusive string
	// Inapplicable says why the part does not apply to this authorizer. Then nothing was asked, and nothing is missing.
	Inapplicable string
}

// Grant fills in the levels that the results grant.
func (c *Certification) Grant() *Certification {
	c.Levels = nil
	for _, result := range c.Results {
		if result.Granted {
			c.Levels = append(c.Levels, result.Level)
		}
	}
	return c
}
