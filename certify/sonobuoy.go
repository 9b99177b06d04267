package certify

import (
	"bytes"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// The files of a plugin of Sonobuoy. Its worker waits for the done file, which names the results:
// https://sonobuoy.io/docs/main/plugins/#writing-your-own-plugin. In a tar, result-format manual reads
// sonobuoy_results.yaml.
const (
	resultsTar     = "authzconf.tar.gz"
	doneFile       = "done"
	sonobuoyFile   = "sonobuoy_results.yaml"
	sonobuoyPassed = "passed"
	sonobuoyFailed = "failed"
)

// sonobuoyItem is a result as Sonobuoy reads it (github.com/vmware-tanzu/sonobuoy/pkg/client/results, Item).
type sonobuoyItem struct {
	Name    string         `json:"name"`
	Status  string         `json:"status"`
	Details map[string]any `json:"details,omitempty"`
	Items   []sonobuoyItem `json:"items,omitempty"`
}

// sonobuoyResults is a certification in Sonobuoy's words.
func (c *Certification) sonobuoyResults() sonobuoyItem {
	all := sonobuoyItem{Name: "authzconf", Status: sonobuoyPassed}
	for _, r := range c.Results {
		item := sonobuoyItem{Name: string(r.Level), Status: sonobuoyPassed, Details: map[string]any{"reviews": r.Reviews, "planned": r.Planned}}
		if !r.Granted {
			item.Status, all.Status = sonobuoyFailed, sonobuoyFailed
		}
		for _, f := range c.Findings {
			if f.Level == r.Level {
				item.Items = append(item.Items, sonobuoyItem{Name: f.Reason, Status: sonobuoyFailed, Details: map[string]any{"answers": f.Count, "examples": f.Examples}})
			}
		}
		all.Items = append(all.Items, item)
	}
	return all
}

// HandOver leaves in a folder what Sonobuoy's worker, or whoever has mounted it, takes from there: a tar with the
// bundle of a folder, and the done file, which comes last. Without a bundle the tar says why there is none.
func HandOver(folder, bundle string, problem error) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	results := sonobuoyItem{Name: "authzconf", Status: sonobuoyFailed}
	b := Bundle{}
	if problem == nil {
		var err error
		if b, err = OpenBundle(bundle); err != nil {
			return err
		}
		c, err := b.Certification()
		if err != nil {
			return err
		}
		results = c.sonobuoyResults()
	} else {
		results.Details = map[string]any{"error": problem.Error()}
	}
	raw, err := yaml.Marshal(results)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := b.Tar(&out, "bundle", map[string][]byte{sonobuoyFile: raw}); err != nil {
		return err
	}
	tarball, err := filepath.Abs(filepath.Join(folder, resultsTar))
	if err != nil {
		return err
	}
	if err := os.WriteFile(tarball, out.Bytes(), 0o644); err != nil {
		return err
	}
	// The worker may read the done file as soon as it is there.
	next := filepath.Join(folder, ".done")
	if err := os.WriteFile(next, []byte(tarball), 0o644); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(folder, doneFile))
}
