// Package permissions describes which permission guards which field of an object, as KEP-3617 (Fine-Grained
// Authorization) would have it in the schema. No API server implements that KEP: what is here serves a reference
// enforcer, which stands before one, and a model to judge it by.
package permissions

import "embed"

// Descriptions holds the descriptions of the fields that KEP-3617 lists, and those of
// the custom resource that the scenarios use.
//
//go:embed descriptions/*.yaml
var Descriptions embed.FS

// GeneralVerb is the permission to change those fields for which one has a permission
// of its own (KEP-3617, "API Server Additional Plumbing and Checks").
const GeneralVerb = "granular"
