package cases

import "slices"

// Factors are all factors, in the order of a Choice.
func Factors() []Factor { return slices.Clone(factors[:]) }
