// Fga-webhook is a webhook authorizer in front of OpenFGA.
package main

import (
	"os"

	"github.com/authzconf/authzconf/ci/engines/openfga"
)

func main() { os.Exit(openfga.Main()) }
