package policy

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/scenarios"
)

// fgaModel is the OpenFGA model of the policy.
//
//go:embed model.fga
var fgaModel string

// FGATuple is a relationship.
type FGATuple struct {
	User     string `json:"user"`
	Relation string `json:"relation"`
	Object   string `json:"object"`
}

// OpenFGA is the policy as a store file of the fga command line: the model, and a tuple for each thing that is
// granted to somebody. The IDs are those of FGAUser, FGAGroup and FGAPermission.
func (p *Policy) OpenFGA() ([]byte, error) {
	var tuples []FGATuple
	seen := map[FGATuple]bool{}
	for _, g := range p.Grants {
		holder := FGAUser(g.Subject.User)
		if g.Subject.Group != "" {
			holder = FGAGroup(g.Subject.Group) + "#member"
		}
		for _, part := range g.Parts() {
			t := FGATuple{holder, "holder", FGAPermission(part)}
			if !seen[t] {
				seen[t] = true
				tuples = append(tuples, t)
			}
		}
	}
	return yaml.Marshal(struct {
		Name   string     `json:"name"`
		Model  string     `json:"model"`
		Tuples []FGATuple `json:"tuples"`
	}{fmt.Sprintf("authzconf-certification-%d", p.Seed), fgaModel, tuples})
}

// maxFGAName is how long an escaped name may be in an ID.
const maxFGAName = 200

// FGAUser is the ID of a user.
func FGAUser(name string) string { return "user:" + fgaName(name) }

// FGAGroup is the ID of a group.
func FGAGroup(name string) string { return "group:" + fgaName(name) }

// fgaName writes what IDs may not have as in URLs. What is too long becomes a digest, and nothing is empty.
func fgaName(name string) string {
	if escaped := url.QueryEscape(name); len(escaped) <= maxFGAName {
		return "=" + escaped
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// FGAPermission is the ID of what a part of a grant (scenarios.Grant.Parts) allows. It is a digest of it without its
// subject, because names are longer than IDs may be.
func FGAPermission(part scenarios.Grant) string {
	part.Subject = scenarios.Subject{}
	raw, err := json.Marshal(part)
	if err != nil {
		panic(err) // of strings: cannot happen
	}
	sum := sha256.Sum256(raw)
	return "permission:" + hex.EncodeToString(sum[:])
}
