package local

import "strings"

// ReloadAuthorization puts another AuthorizationConfiguration in place of the one that the API
// server was started with, which watches the file. It does not wait until the API server has taken
// it over. A restart brings back the first one.
func (c *ControlPlane) ReloadAuthorization(config []byte) error {
	return c.run.write(authorizationFile, []byte(strings.ReplaceAll(string(config), DirPlaceholder, c.run.path)))
}
