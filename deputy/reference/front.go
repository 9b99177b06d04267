package reference

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// ClustersPath is the path below which the front of a hub has each cluster. The cluster's name follows, and then the
// path of its Kubernetes API.
const ClustersPath = "/clusters/"

// NewFront returns the front of a hub. Only the path of a request says which cluster it is for, and each cluster has
// connections of its own, so no header, no earlier request and no other person's choice can change that. It refuses a
// cluster that the hub does not know, and a path that two readers could understand differently.
func NewFront(hub *Hub, clusters ...string) http.Handler {
	to := map[string]http.Handler{}
	for _, cluster := range clusters {
		transport := &http.Transport{MaxIdleConnsPerHost: 100, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return hub.Dial(ctx, cluster)
		}}
		agent := proxy(&url.URL{Scheme: "http", Host: cluster}, transport, func(http.Header) {})
		to[cluster] = http.StripPrefix(ClustersPath+cluster, agent)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cluster, hasDots := clusterOf(r.URL)
		agent := to[cluster]
		switch {
		case !isPlainConnection(r.Header):
			refuse(w, http.StatusForbidden, "the header Connection names other headers")
		case agent == nil:
			refuse(w, http.StatusNotFound, "there is no such cluster")
		case hasDots:
			refuse(w, http.StatusBadRequest, "the path has a segment of dots")
		default:
			agent.ServeHTTP(w, r)
		}
	})
}

// clusterOf returns the name of the cluster in a path, or "" if there is none. hasDots means that a segment of the path
// leads upwards.
func clusterOf(u *url.URL) (cluster string, hasDots bool) {
	rest, isBelow := strings.CutPrefix(u.EscapedPath(), ClustersPath)
	if !isBelow {
		return "", false
	}
	cluster, _, _ = strings.Cut(rest, "/")
	segments := strings.Split(u.Path, "/")
	return cluster, slices.Contains(segments, "..") || slices.Contains(segments, ".")
}
