// Package v1beta1 declares the Widget, the custom resource of the scenarios, with markers.
//
// +groupName=granular.authzconf.dev
package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Widget is the custom resource.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   WidgetSpec   `json:"spec,omitempty"`
	Status WidgetStatus `json:"status,omitempty"`
}

// WidgetSpec is what somebody wants of a Widget.
type WidgetSpec struct {
	// +permission-verb:"nodeAssignment"
	NodeName string `json:"nodeName,omitempty"`

	// +permission-verb:"scale"
	Replicas *int32 `json:"replicas,omitempty"`

	// +permission-verb:"schedulingPause"
	SchedulePaused bool `json:"schedulePaused,omitempty"`

	// +permission-verb:"selfDestruction"
	// +permission-excluded
	TriggerSelfDestructOnSecurityBreach bool `json:"triggerSelfDestructOnSecurityBreach,omitempty"`

	// +permission-verb:"privilege"
	// +permission-excluded-values:[true]
	Privileged bool `json:"privileged,omitempty"`

	// +permission-verb:"publication"
	// +permission-excluded-values:["partners", "public"]
	Exposure string `json:"exposure,omitempty"`

	// +permission-verb:"precedence"
	// +permission-excluded-values:[1000, 0.5]
	Priority float64 `json:"priority,omitempty"`

	Mode string `json:"mode,omitempty"`

	// +listType=map
	// +listMapKey=name
	Parts []Part `json:"parts,omitempty"`
}

// Part is a part of a Widget.
//
// +permission-verb:"part"
// +permission-parameterized-by:"part-name"
type Part struct {
	// +permission-parameter-source:"part-name"
	Name string `json:"name"`

	// +permission-verb:"imageOf"
	// +permission-parameterized-by:"part-name"
	Image string `json:"image,omitempty"`

	Weight int32 `json:"weight,omitempty"`
}

// WidgetStatus is what was observed. Its permissions are those of every resource.
type WidgetStatus struct {
	Phase string `json:"phase,omitempty"`

	// +permission-verb:"approval"
	// +permission-excluded-values:["approved"]
	Review string `json:"review,omitempty"`

	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
