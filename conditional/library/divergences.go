package library

import (
	_ "embed" // the list of divergences
	"fmt"
	"reflect"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	_ "k8s.io/apiserver/pkg/features" // registers the gates
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"github.com/authzconf/authzconf/conditional/vectors"
	"github.com/authzconf/authzconf/scenarios"
)

//go:embed divergences.yaml
var divergencesFile []byte

// List is what is known of the library.
type List struct {
	Divergences []Divergence `yaml:"divergences"`
	Absent      []Divergence `yaml:"absent"`
	// Sections are those of the KEP that demand something.
	Sections []string `yaml:"sections"`
}

// Divergence is something that the library does otherwise than the KEP says, or has no part for.
type Divergence struct {
	Name string `json:"name" yaml:"name"`
	// Upstream is the file and function in k8s.io/apiserver.
	Upstream string `json:"upstream" yaml:"upstream"`
	// Says is what the KEP says, Instead what the library does.
	Says    string `json:"says" yaml:"says"`
	Instead string `json:"instead" yaml:"instead"`
	// Vectors are IDs; one that ends in "/" is a folder.
	Vectors []string `json:"vectors,omitempty" yaml:"vectors,omitempty"`
	// Fields are those of vectors.Want that differ.
	Fields []string `json:"fields,omitempty" yaml:"fields,omitempty"`
	// Reading covers every vector with which the library agrees in that reading.
	Reading vectors.Reading `json:"reading,omitempty" yaml:"reading,omitempty"`
	// Probe names what is looked at to see whether it is absent still.
	Probe string `json:"probe,omitempty" yaml:"probe,omitempty"`
	// Seen is how many vectors it was seen with.
	Seen int `json:"seen" yaml:"-"`
}

// Known is the list that comes with authzconf.
func Known() (*List, error) {
	var l List
	if _, err := scenarios.Decode("divergences.yaml", divergencesFile, "a list of divergences", &l); err != nil {
		return nil, err
	}
	return &l, nil
}

// names tells whether a divergence is about a vector.
func (d *Divergence) names(id string) bool {
	return slices.ContainsFunc(d.Vectors, func(v string) bool {
		return v == id || strings.HasSuffix(v, "/") && strings.HasPrefix(id, v)
	})
}

// covers tells whether differences are those that a divergence explains. Each begins with its field.
func (d *Divergence) covers(differences []string) bool {
	return !slices.ContainsFunc(differences, func(line string) bool {
		field, _, _ := strings.Cut(line, ":")
		return !slices.Contains(d.Fields, field)
	})
}

// probes tell whether the library has a part by now.
var probes = map[string]func() bool{
	"conditionsChain": func() bool {
		_, there := reflect.TypeFor[authorizationv1.SubjectAccessReviewStatus]().FieldByName("ConditionsChain")
		return there
	},
	"gate": func() bool {
		_, there := utilfeature.DefaultMutableFeatureGate.GetAll()[featuregate.Feature("ConditionalAuthorization")]
		return there
	},
	"effects": func() bool {
		_, there := reflect.TypeFor[authorizer.Condition]().MethodByName("GetEffect")
		return there
	},
}

// stale says which entries are not true any more.
func (l *List) stale(differing map[string]bool, known map[string]bool) (out []string) {
	for _, d := range l.Divergences {
		if d.Seen == 0 {
			out = append(out, fmt.Sprintf("divergence %s: nothing differs any more", d.Name))
		}
		for _, id := range d.Vectors {
			if !strings.HasSuffix(id, "/") && !differing[id] {
				out = append(out, fmt.Sprintf("divergence %s: %s does not differ, or is not a vector", d.Name, id))
			}
		}
	}
	for _, d := range l.Absent {
		if probe := probes[d.Probe]; probe == nil {
			out = append(out, fmt.Sprintf("absent %s: probe %q is unknown", d.Name, d.Probe))
		} else if probe() {
			out = append(out, fmt.Sprintf("absent %s: it is there by now (%s)", d.Name, d.Probe))
		}
		if d.Seen == 0 {
			out = append(out, fmt.Sprintf("absent %s: no vector is about it", d.Name))
		}
		for _, id := range d.Vectors {
			if !strings.HasSuffix(id, "/") && !known[id] {
				out = append(out, fmt.Sprintf("absent %s: %s is not a vector", d.Name, id))
			}
		}
	}
	return out
}
