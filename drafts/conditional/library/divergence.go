package library

import (
	"reflect"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	_ "k8s.io/apiserver/pkg/features" // registers the gates
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	_ "embed" // the list of divergences

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/scenarios"
)

//go:embed divergences.yaml
var divergencesFile []byte

// List is what is known of the library.
type List struct {
	Divergences []Divergence `yaml:"divergences"`
	Absent      []Divergence `yaml:"absent"`
	Sections    []string     `yaml:"sections"` // those of the KEP that demand something
}

// Divergence is something that the library does otherwise than the KEP says, or has no part for.
type Divergence struct {
	Name     string `json:"name" yaml:"name"`
	Upstream string `json:"upstream" yaml:"upstream"` // the file and function in k8s.io/apiserver
	Says     string `json:"says" yaml:"says"`         // what the KEP says, Instead what the library does
	Instead  string `json:"instead" yaml:"instead"`
	// Vectors are IDs of what is absent; one that ends in "/" is a folder.
	Vectors []string `json:"vectors,omitempty" yaml:"vectors,omitempty"`
	Answers []Answer `json:"answers,omitempty" yaml:"answers,omitempty"` // what the library answers instead
	// Reading covers every vector with which the library agrees in that reading.
	Reading vectors.Reading `json:"reading,omitempty" yaml:"reading,omitempty"`
	// Part says that the library has a part for some fields of the vectors of what is absent: those are judged.
	Part bool `json:"part,omitempty" yaml:"part,omitempty"`
	// Probe names what is looked at to see whether it is absent still.
	Probe string `json:"probe,omitempty" yaml:"probe,omitempty"`
	Seen  int    `json:"seen" yaml:"-"` // how many vectors it was seen with
}

// Answer is what the library answers to vectors: the fields that differ, with their values.
type Answer struct {
	Vectors      []string `json:"vectors" yaml:"vectors"`
	vectors.Want `json:",inline" yaml:",inline"`
}

// Known returns the list that comes with authzconf.
func Known() (*List, error) {
	var l List
	_, err := scenarios.Decode("divergences.yaml", divergencesFile, "a list of divergences", &l)
	return &l, err
}

// names reports whether the divergence is about a vector, by its ID.
func (d *Divergence) names(id string) bool {
	return slices.ContainsFunc(d.Vectors, func(v string) bool {
		if strings.HasSuffix(v, "/") {
			return strings.HasPrefix(id, v)
		}
		return v == id
	})
}

// answer returns what is known of the library's answer to a vector, nil if nothing is.
func (d *Divergence) answer(id string) *vectors.Want {
	for i := range d.Answers {
		if slices.Contains(d.Answers[i].Vectors, id) {
			return &d.Answers[i].Want
		}
	}
	return nil
}

// probes report whether the library has a part by now.
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

// ids returns the vectors that the divergence names, without folders.
func (d *Divergence) ids() []string {
	ids := slices.Clone(d.Vectors)
	for _, a := range d.Answers {
		ids = append(ids, a.Vectors...)
	}
	return slices.DeleteFunc(ids, func(id string) bool { return strings.HasSuffix(id, "/") })
}

// find returns the first divergence that is about a vector, nil if there is none.
func find(list []Divergence, id string) *Divergence {
	i := slices.IndexFunc(list, func(d Divergence) bool { return d.names(id) })
	if i < 0 {
		return nil
	}
	return &list[i]
}
