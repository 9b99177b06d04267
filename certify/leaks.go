package certify

import "regexp"

// leakPatterns are what a reason or an error of an authorizer should not show, because an API server repeats the reason
// of a refusal to whoever sent the request.
var leakPatterns = []struct {
	what    string
	pattern *regexp.Regexp
}{
	{"a stack trace", regexp.MustCompile(`goroutine \d+ \[|runtime error: |Traceback \(most recent call last\)|\n\s+at \S+\(|thread '[^']*' panicked`)},
	{"a password within a URL", regexp.MustCompile(`\w://[^/\s:@]+:[^/\s@]+@`)},
	{"the address of a backend", regexp.MustCompile(`\b(dial|read|write) (tcp|udp) `)},
}

// findLeak returns, in words, what a text shows of the inside of an authorizer, or "" if nothing is recognised.
func findLeak(text string) string {
	for _, leak := range leakPatterns {
		if leak.pattern.MatchString(text) {
			return leak.what
		}
	}
	return ""
}
