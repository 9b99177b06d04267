// Package meta has the shape of k8s.io/apimachinery/pkg/apis/meta/v1, with the markers that KEP-3617 proposes for it.
package meta

// TypeMeta is the kind of an object.
type TypeMeta struct {
	Kind       string `json:"kind,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
}

// ListMeta is the metadata of a list.
type ListMeta struct {
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// ObjectMeta is the metadata of an object.
//
// +permission-verb:"objectMeta"
type ObjectMeta struct {
	Name string `json:"name,omitempty"`

	// Map of string keys and values that can be used to organize and categorize
	// (scope and select) objects. May match selectors of replication controllers
	// and services.
	// More info: http://kubernetes.io/docs/user-guide/labels
	// +optional
	// +permission-verb:"labels"
	Labels map[LabelKey]LabelValue `json:"labels,omitempty" protobuf:"bytes,11,rep,name=labels"`

	// +listType=set
	// +permission-verb:"finalizers"
	Finalizers []Finalizer `json:"finalizers,omitempty"`

	unexported int
}

// LabelKey is a key for a label; it is a string.
// +permission-parameter-source:"label-key"
type LabelKey string

// LabelValue is a value in a label; it is a string.
// +permission-verb:"label"
// +permission-parameterized-by:"label-key"
// +permission-parameter-treatment:slash-delimited-prefix
type LabelValue string

// Finalizer is the name of a finalizer. It is an item of a set, so it is its own parameter.
// +permission-parameter-source:"finalizer-name"
// +permission-verb:"finalizer"
// +permission-parameterized-by:"finalizer-name"
// +permission-parameter-treatment:slash-delimited-prefix
type Finalizer string
