//go:build go1.27

package recorder

import (
	"math"
	"net/http"
)

// liftHeaderLimit has a server take any number of header values: it is what API servers pass on that is judged here, and Go
// 1.27 would refuse more than 500.
func liftHeaderLimit(s *http.Server) { s.MaxHeaderValueCount = math.MaxInt32 }
