package main

import (
	"regexp"
	"slices"
	"strings"
)

// The claims that a README can make, as its table spells them.
const (
	claimOrganisation   = "organisation"
	claimProduct        = "product"
	claimProductVersion = "product version"
	claimKind           = "kind"
	claimLevels         = "levels"
	claimServers        = "servers"
	claimOutcome        = "outcome"
	claimContact        = "contact"
	// claimHeading heads the column of claims.
	claimHeading = "claim"
)

// requiredClaims are those of every README; levels are claimed of authorizers, servers of all others.
var requiredClaims = []string{claimOrganisation, claimProduct, claimProductVersion, claimKind, claimOutcome, claimContact}

// The sections that a README has to have.
const (
	sectionClaims    = "## Claims"
	sectionReproduce = "## Reproduce"
)

// readme is what the README of a submission says.
type readme struct {
	claims map[string]claim
}

// claim is a row of the table of claims.
type claim struct {
	value string
	// line is where the row stands, from 1.
	line int
}

// commandBlock fits a block of code that is not empty.
var commandBlock = regexp.MustCompile("(?s)```[a-z]*\n[^`]+\n```")

var claimRow = regexp.MustCompile(`^\|\s*([a-z][a-z ]*?)\s*\|\s*(.*?)\s*\|\s*$`)

// parseReadme reads the README of a submission: a table below the heading Claims, and a text below the heading Reproduce
// that has a command.
func parseReadme(text string) (*readme, error) {
	r := &readme{claims: map[string]claim{}}
	section, reproduce := "", ""
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "## ") {
			section = strings.TrimSpace(line)
			continue
		}
		switch section {
		case sectionReproduce:
			reproduce += line + "\n"
		case sectionClaims:
			if err := r.addClaim(i+1, line); err != nil {
				return nil, err
			}
		}
	}
	if len(r.claims) == 0 {
		return nil, formErrorf(
			"%s: there is no section %q with a table of claims (docs/submitted.md has one to copy)",
			readmeFile,
			sectionClaims,
		)
	}
	if !commandBlock.MatchString(reproduce) {
		return nil, formErrorf(
			"%s: there is no section %q with a block of commands that make the report again",
			readmeFile,
			sectionReproduce,
		)
	}
	return r, r.checkNames()
}

// addClaim adds the claim of a row.
func (r *readme) addClaim(at int, line string) error {
	row := claimRow.FindStringSubmatch(line)
	if row == nil {
		return nil
	}
	name, value := row[1], row[2]
	if name == claimHeading {
		return nil
	}
	if _, isKnown := r.claims[name]; isKnown {
		return formErrorf("%s:%d: %q is claimed twice", readmeFile, at, name)
	}
	if !slices.Contains(append(requiredClaims, claimLevels, claimServers), name) {
		return formErrorf(
			"%s:%d: %q is not a claim (expected %s, and %s or %s)",
			readmeFile,
			at,
			name,
			strings.Join(requiredClaims, ", "),
			claimLevels,
			claimServers,
		)
	}
	if value == "" {
		return formErrorf("%s:%d: the claim %q is empty", readmeFile, at, name)
	}
	r.claims[name] = claim{value: value, line: at}
	return nil
}

// checkNames wants every claim that there has to be.
func (r *readme) checkNames() error {
	scope := claimServers
	if r.claims[claimKind].value == kindAuthorizer {
		scope = claimLevels
	}
	for _, name := range append(slices.Clone(requiredClaims), scope) {
		if _, isMade := r.claims[name]; !isMade {
			return formErrorf("%s: the table of claims has no row %q", readmeFile, name)
		}
	}
	return nil
}
