package certify

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
)

var residentMemory = regexp.MustCompile(`(?m)^process_resident_memory_bytes ([0-9.e+]+)$`)

// memory returns the memory of the webhook in bytes, as its /metrics state it, or 0 if they do not.
func (c *client) memory(ctx context.Context) int64 {
	u, err := url.Parse(c.url)
	if err != nil {
		return 0
	}
	u.Path, u.RawQuery = "/metrics", ""
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 8*maxAnswer))
	match := residentMemory.FindSubmatch(raw)
	if err != nil || resp.StatusCode != http.StatusOK || match == nil {
		return 0
	}
	bytes, _ := strconv.ParseFloat(string(match[1]), 64)
	return int64(bytes)
}
