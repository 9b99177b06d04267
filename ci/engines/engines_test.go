package engines
import (
 _ "github.com/cedar-policy/cedar-go"
 _ "github.com/open-policy-agent/opa/v1/rego"
 _ "github.com/openfga/openfga/pkg/server"
 _ "github.com/authzconf/authzconf/suites/certify"
)
