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

// List is the list of known divergences of the library.
type List struct {
	Divergences []Divergence `yaml:"divergences"`
	Absent      []Divergence `yaml:"absent"`
	Sections    []string     `yaml:"sections"` // the sections of the KEP that demand something
}

// Divergence is a difference between the library and the KEP, or a part of the KEP that the library does not have.
type Divergence struct {
	Name     string `json:"name" yaml:"name"`
	Upstream string `json:"upstream" yaml:"upstream"` // the file and function in k8s.io/apiserver
	Says     string `json:"says" yaml:"says"`         // what the KEP says; Instead is what the library does
	Instead  string `json:"instead" yaml:"instead"`
	// Vectors are the IDs of vectors about an absent part. An ID that ends in "/" is a folder.
	Vectors []string        `json:"vectors,omitempty" yaml:"vectors,omitempty"`
	Answers []LibraryResult `json:"answers,omitempty" yaml:"answers,omitempty"` // what the library answers instead
	// Reading covers every vector with which the library agrees in that reading of the chain.
	Reading vectors.Reading `json:"reading,omitempty" yaml:"reading,omitempty"`
	// Part says that the library has some fields of the vectors about an absent part. Those fields are judged.
	Part bool `json:"part,omitempty" yaml:"part,omitempty"`
	// Probe is the name of the probe that reports whether the part exists by now.
	Probe string `json:"probe,omitempty" yaml:"probe,omitempty"`
	Seen  int    `json:"seen" yaml:"-"` // the number of vectors that it was seen with
}

// LibraryResult is the answer of the library to some vectors: the fields that differ, with their values.
type LibraryResult struct {
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

// answer returns the known answer of the library to a vector. It is nil if there is none.
func (d *Divergence) answer(id string) *vectors.Want {
	for i := range d.Answers {
		if slices.Contains(d.Answers[i].Vectors, id) {
			return &d.Answers[i].Want
		}
	}
	return nil
}

// probes report whether the library has an absent part by now.
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

// find returns the first divergence that is about a vector. It is nil if there is none.
func find(list []Divergence, id string) *Divergence {
	i := slices.IndexFunc(list, func(d Divergence) bool { return d.names(id) })
	if i < 0 {
		return nil
	}
	return &list[i]
}
