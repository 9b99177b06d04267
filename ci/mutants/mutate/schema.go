package mutate

import _ "embed" // the helpers

// HelperName is what the mutated source calls the package of helpers.
const HelperName = "zzmutants"

// SharedVariable names the environment variable with the path of a file that the program shares with whoever
// started it: SharedHeader bytes with the number of the chosen mutant, in little-endian order, which may change at
// any time; and a byte for each number from 0, which the program sets to 1 when it reaches the place of that mutant's
// change. Without it no mutant is chosen.
const SharedVariable = "AUTHZCONF_MUTANTS_SHARED"

// SharedHeader is the length of the number in the shared file.
const SharedHeader = 4

// Helpers is the source of the package that the mutated source imports.
//
//go:embed helpers.txt
var Helpers string
