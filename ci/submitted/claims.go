package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/clusters/providers"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/deputy"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
)

// The kinds of products that can be submitted.
const (
	kindAuthorizer = "authorizer"
	kindProxy      = "proxy"
	kindCluster    = "cluster"
	kindAPIServer  = "API server"
)

// kindOf returns what a report is about, empty if such reports cannot be submitted.
func kindOf(r *reports.Report) string {
	isConformance := r.Product == conformance.Product.Name || r.Product == conformance.UpgradeName
	switch {
	case r.Product == certify.Product.Name:
		return kindAuthorizer
	case r.Product == deputy.Product.Name:
		return kindProxy
	case isConformance && providers.CapabilitiesOf(r.Subject.Provider).Processes:
		return kindAPIServer
	case isConformance:
		return kindCluster
	}
	return ""
}

// checkClaims compares what the README and the folders say with what the report says.
func (s *submission) checkClaims() error {
	if s.report.SuiteVersion != s.version {
		return fmt.Errorf(
			"the report was made by authzconf %s, and the folder says %s (reports/submitted/VERSION is the version that made it)",
			s.report.SuiteVersion,
			s.version,
		)
	}
	kind := kindOf(s.report)
	if kind == "" {
		return formErrorf("a report of %s cannot be submitted (expected one of certify, deputy, run or upgrade)", s.report.Product)
	}
	observed := map[string]string{claimKind: kind, claimOutcome: string(s.report.Outcome.Result)}
	if kind == kindAuthorizer {
		observed[claimLevels] = strings.Join(certify.GrantedLevels(s.report.Groups), ", ")
		observed[claimOrganisation] = s.report.Subject.Vendor
		observed[claimProduct] = s.report.Subject.Name
		observed[claimProductVersion] = s.report.Subject.Version
	} else {
		observed[claimServers] = strings.Join(servers(s.report), ", ")
	}
	for _, name := range slices.Sorted(maps.Keys(observed)) {
		got, want := s.readme.claims[name], observed[name]
		if got.value != want {
			return fmt.Errorf("%s:%d: %s: it claims %q, and the report says %q", readmeFile, got.line, name, got.value, want)
		}
	}
	return s.checkFolderName()
}

var noSlug = regexp.MustCompile(`[^a-z0-9]+`)

// checkFolderName wants the folder to be called after the organisation and the product.
func (s *submission) checkFolderName() error {
	slug := func(text string) string {
		return strings.Trim(noSlug.ReplaceAllString(strings.ToLower(text), "-"), "-")
	}
	want := slug(s.readme.claims[claimOrganisation].value) + "-" + slug(s.readme.claims[claimProduct].value)
	if s.name != want {
		return formErrorf(
			"the folder is called %s (expected %s, after the organisation and the product that %s claims)",
			s.name,
			want,
			readmeFile,
		)
	}
	return nil
}

// servers returns the API servers of a report with the state of the gate, each once, in the order of the report.
func servers(r *reports.Report) (all []string) {
	for _, g := range r.Groups {
		if g.Cell == nil {
			continue
		}
		all = seq.AppendMissing(all, fmt.Sprintf("%s gate %s", g.Cell.Kubernetes, g.Cell.Gate))
	}
	return all
}
