//go:build !go1.27

package recorder

import "net/http"

// liftHeaderLimit does nothing: before 1.27, Go has no limit on the number of header values.
func liftHeaderLimit(*http.Server) {}
