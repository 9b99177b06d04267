package certify

import "regexp"

// insides are what a reason or an error of an authorizer should not show, because an API server repeats the reason of a
// refusal to whoever sent the request.
var insides = []struct {
	what    string
	pattern *regexp.Regexp
}{
	{"a stack trace", regexp.MustCompile(`goroutine \d+ \[|runtime error: |Traceback \(most recent call last\)|\n\s+at \S+\(|thread '[^']*' panicked`)},
	{"a password within a URL", regexp.MustCompile(`\w://[^/\s:@]+:[^/\s@]+@`)},
	{"the address of a backend", regexp.MustCompile(`\b(dial|read|write) (tcp|udp) `)},
}

// findInside returns, in words, what a text shows of the inside of an authorizer, or "" if nothing is recognised.
func findInside(text string) string {
	for _, inside := range insides {
		if inside.pattern.MatchString(text) {
			return inside.what
		}
	}
	return ""
}
