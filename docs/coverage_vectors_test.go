package docs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/authzconf/authzconf/drafts/conditional/library"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// vectorProof is what a vector of KEP-5681 shows. Whether that is more than our own reading of the document is not written
// down but found out: the library k8s.io/apiserver is asked.
type vectorProof struct {
	ID   string
	Kind library.Kind
	// Instead is what the library does where it is known to do otherwise.
	Instead string
}

// loadVectors returns what each built-in vector shows, by ID. A vector for authorizers has no kind: the library is none.
func loadVectors(t *testing.T) map[string]vectorProof {
	t.Helper()
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	known, err := library.Known()
	if err != nil {
		t.Fatal(err)
	}
	proofs := map[string]vectorProof{}
	for _, v := range all {
		proof := vectorProof{ID: v.ID}
		if v.APIServer != nil {
			observed, err := library.Observe(t.Context(), v.APIServer)
			if err != nil {
				t.Fatalf("%s: %v", v.ID, err)
			}
			finding := known.Compare(v, observed)
			proof.Kind = finding.Kind
			if finding.Kind == library.Divergent {
				proof.Instead = finding.Known.Instead
			}
		}
		proofs[v.ID] = proof
	}
	return proofs
}

// findVectors returns what the vectors of a statement show, and reports an error for those that do not exist or fail.
func (c catalogueOfProof) findVectors(t *testing.T, where string, names []string) (found []vectorProof) {
	t.Helper()
	for _, name := range names {
		proof, exists := c.vectors[name]
		switch {
		case !exists:
			t.Errorf("%s: there is no vector %s", where, name)
		case proof.Kind == library.Failed:
			t.Errorf("%s: the library fails the vector %s", where, name)
		default:
			found = append(found, proof)
		}
	}
	return found
}

// hasVectorOf reports whether a vector of the statement has come out in a way.
func (s statement) hasVectorOf(kind library.Kind) bool {
	return slices.ContainsFunc(s.shown, func(v vectorProof) bool { return v.Kind == kind })
}

// render returns the link to a vector, and who judges it. A row of a table stands in the file of the table.
func (v vectorProof) render() string {
	file := path.Join("scenarios", v.ID+".vector.yaml")
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		file = path.Join("scenarios", path.Dir(v.ID)+".vector.yaml")
	}
	by := map[library.Kind]string{
		library.Agree:     "k8s.io/apiserver agrees",
		library.Divergent: "k8s.io/apiserver does otherwise. " + v.Instead,
		library.Part:      "by our model, from the decisions of k8s.io/apiserver",
		library.Absent:    "by our model",
		"":                "by our reference",
	}[v.Kind]
	return fmt.Sprintf("[%s](../%s): %s", escapeCell(v.ID), file, escapeCell(by))
}
