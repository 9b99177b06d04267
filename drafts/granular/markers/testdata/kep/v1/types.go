package v1

import (
	"time"

	metav1 "github.com/authzconf/authzconf/drafts/granular/markers/testdata/kep/meta"
)

// +genclient
// +kubebuilder:object:root=true

// Foo has a specification whose type has the permission.
type Foo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec FooSpec `json:"spec,omitempty"`
}

// FooSpec is what somebody wants of a Foo.
//
// +permission-verb:"specification"
type FooSpec struct {
	Common `json:",inline"`

	Since time.Time `json:"since,omitempty"`
	Name  string    `json:"name"`
	// Ignored is not part of the object.
	Ignored string   `json:"-"`
	Next    *FooSpec `json:"-"`
}

// Common is inlined.
type Common struct {
	// +permission-verb:"pause"
	Paused *bool `json:"paused,omitempty"`
}

// FooList is a list of Foos, and no resource of its own.
//
// +kubebuilder:object:root=true
type FooList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Foo `json:"items"`
}

// Pod has a permission for a field of its specification, which also has one for the whole.
type Pod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +permission-verb:"specification"
	Spec PodSpec `json:"spec,omitempty"`
	// Status has permissions for the conditions, by their type.
	Status PodStatus `json:"status,omitempty"`
}

// PodSpec is what somebody wants of a Pod.
type PodSpec struct {
	// +permission-verb:"nodeAssignment"
	NodeName string `json:"nodeName,omitempty"`

	// TriggerSelfDestructOnSecurityBreach is the field of the KEP's second story.
	// +permission-verb:"selfDestruction"
	// +permission-excluded
	TriggerSelfDestructOnSecurityBreach bool `json:"triggerSelfDestructOnSecurityBreach,omitempty"`
}

type (
	// PodStatus is what was observed.
	//
	// +permission-verb:"status"
	PodStatus struct {
		Conditions Conditions `json:"conditions,omitempty"`
	}

	// Conditions are identified by their type.
	//
	// +listType=map
	// +listMapKey=type
	// +permission-verb:"conditions"
	Conditions []*Condition

	/*
		Condition is one of them.
		+permission-verb:"condition"
		+permission-parameterized-by:"condition-type"
	*/
	Condition struct {
		// +permission-parameter-source:"condition-type"
		Type string `json:"type"`

		Message string `json:"message,omitempty"`
	}
)

// Bar has a name in the plural that no rule knows.
//
// +kubebuilder:resource:scope=Cluster,path=barren,shortName=b
type Bar struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}
