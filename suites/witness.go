package suites

import (
	"encoding/xml"
	"os"

	"github.com/onsi/ginkgo/v2/reporters"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/pages"
)

// addWitness adds what each control plane said about itself to the properties of the suites in a JUnit file that Ginkgo
// has written. Without a file or a report it does nothing.
func addWitness(path string, r *reports.Report) error {
	if path == "" || r == nil {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var suites reporters.JUnitTestSuites
	if err := xml.Unmarshal(data, &suites); err != nil {
		return err
	}
	for i := range suites.TestSuites {
		properties := &suites.TestSuites[i].Properties
		for j := range r.Groups {
			g := &r.Groups[j]
			for _, fact := range pages.ListProperties(g) {
				properties.Properties = append(properties.Properties,
					reporters.JUnitProperty{Name: g.Name + " " + fact.Name, Value: fact.Value},
				)
			}
		}
	}
	out, err := xml.MarshalIndent(suites, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte(xml.Header), out...), 0o600)
}
