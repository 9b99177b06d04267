package explore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/verdicts"
)

// Report is what came out of exploring.
type Report struct {
	reports.Record `json:",inline"`

	Seed  int64        `json:"seed"`
	Cases int          `json:"cases"`
	Cells []CellReport `json:"cells"`
	// Interrupted says that not everything that was asked for was done.
	Interrupted bool `json:"interrupted,omitempty"`
}

// CellReport is what came out of one cell.
type CellReport struct {
	Name       string `json:"name"`
	Kubernetes string `json:"kubernetes"`
	Gate       string `json:"gate"`
	// Lanes is how many control planes it was explored on.
	Lanes int `json:"lanes"`
	// Cases, Requests and Reviews are how many were judged; OverRBAC of the cases
	// had their grants as RBAC objects.
	Cases    int     `json:"cases"`
	Requests int     `json:"requests"`
	Reviews  int     `json:"reviews"`
	OverRBAC int     `json:"overRBAC"`
	Seconds  float64 `json:"seconds"`
	// Pairs of the AllPairs pairs of levels came up.
	Pairs    int `json:"pairs"`
	AllPairs int `json:"allPairs"`
	// NotConfirmed cases differed in a batch, and not alone; Recounts batches had totals that did not add up.
	NotConfirmed int `json:"notConfirmed"`
	Recounts     int `json:"recounts"`
	// Stopped says that there were too many disagreements to go on.
	Stopped       bool           `json:"stopped,omitempty"`
	Disagreements []Disagreement `json:"disagreements,omitempty"`
	// Problems are what broke in the environment.
	Problems []string `json:"problems,omitempty"`
}

// Disagreement is a case in which model and server differ, made small.
type Disagreement struct {
	Case   int    `json:"case"`
	Choice string `json:"choice"`
	Reason string `json:"reason"`
	// OverRBAC says that it is the same with RBAC objects as grants.
	OverRBAC    bool                  `json:"overRBAC"`
	Differences []verdicts.Difference `json:"differences"`
	// Scenario is the smallest case as a file, with the model's expectations.
	Scenario string `json:"-"`
}

// and adds what another lane of the same cell found.
func (c CellReport) and(d CellReport) CellReport {
	c.Cases += d.Cases
	c.Requests += d.Requests
	c.Reviews += d.Reviews
	c.OverRBAC += d.OverRBAC
	c.Seconds = max(c.Seconds, d.Seconds)
	c.Pairs, c.AllPairs = max(c.Pairs, d.Pairs), max(c.AllPairs, d.AllPairs)
	c.NotConfirmed += d.NotConfirmed
	c.Recounts += d.Recounts
	c.Stopped = c.Stopped || d.Stopped
	c.Disagreements = slices.Concat(c.Disagreements, d.Disagreements)
	c.Problems = slices.Concat(c.Problems, d.Problems)
	return c
}

// line says on one line what came out.
func (c CellReport) line() string {
	text := fmt.Sprintf("%d cases, %d requests, %d reviews in %.0f s (%.0f cases/s), %d over RBAC; %d of %d pairs; %d disagreements",
		c.Cases, c.Requests, c.Reviews, c.Seconds, float64(c.Cases)/max(c.Seconds, 1e-9), c.OverRBAC, c.Pairs, c.AllPairs, len(c.Disagreements))
	if c.NotConfirmed > 0 {
		text += fmt.Sprintf("; %d differed once and not again", c.NotConfirmed)
	}
	if c.Stopped {
		text += "; stopped early"
	}
	return text
}

// Lines are the report for people.
func (r *Report) Lines() (out []string) {
	for _, c := range r.Cells {
		out = append(out, c.Name+": "+c.line())
		for _, d := range c.Disagreements {
			out = append(out, fmt.Sprintf("  case %d: %s", d.Case, d.Reason))
		}
		for _, p := range c.Problems {
			out = append(out, "  broke: "+p)
		}
	}
	if r.Interrupted {
		out = append(out, "interrupted: this is what was found until then")
	}
	return out
}

// Disagreed tells whether model and server differ anywhere.
func (r *Report) Disagreed() bool {
	return slices.ContainsFunc(r.Cells, func(c CellReport) bool { return len(c.Disagreements) > 0 })
}

// Broken says what keeps the report from being believed: something broke, was seen once only, or was not done.
func (r *Report) Broken() error {
	var errs []error
	for _, c := range r.Cells {
		for _, p := range c.Problems {
			errs = append(errs, fmt.Errorf("%s: %s", c.Name, p))
		}
		if c.NotConfirmed > 0 || c.Recounts > 0 {
			errs = append(errs, fmt.Errorf("%s: %d cases differed once and not again, %d batches did not add up", c.Name, c.NotConfirmed, c.Recounts))
		}
	}
	if r.Interrupted {
		errs = append(errs, errors.New("interrupted"))
	}
	return errors.Join(errs...)
}

// Folder is a report in a folder.
var Folder = filing.Kind{
	Name: "report of explore", Marker: "explore.yaml", Head: map[string]string{"seed": "", "cells": ""},
	Files: []string{"scenarios/*/case-*.yaml", "evidence/*.json.gz", "evidence/*/*.json.gz", reports.SignatureFile},
}

// conclude sets the outcome.
func (r *Report) conclude() { r.Conclude(r.Disagreed(), r.Broken() != nil) }

// Pages are a scenario file for each disagreement.
func (r *Report) Pages() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, c := range r.Cells {
		for _, d := range c.Disagreements {
			files[fmt.Sprintf("scenarios/%s/case-%06d.yaml", c.Name, d.Case)] = []byte(d.Scenario)
		}
	}
	return files, nil
}
