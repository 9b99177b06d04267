package agent

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/loadgen/pacer"
)

// reflectors makes every agent of a schedule come back until the block ends.
func (s *Storm) reflectors(ctx, inner context.Context, schedule []pacer.Send) {
	var planned atomic.Int64
	var agents sync.WaitGroup
	for _, first := range schedule {
		agents.Go(func() { planned.Add(s.reflect(ctx, inner, first)) })
	}
	agents.Wait()
	s.tally.block.Planned = planned.Load()
}

// These are the kinds of requests of an agent that comes back.
const listKind, watchKind = 0, 2

// reflect runs an agent that comes back as client-go's reflectors do. Without WatchList it lists, and watches from the
// version of the list. If the watch ends, it is continued where it was. If that ends at once, because a server that has
// just started says that the version is too old, the agent waits and lists again.
func (s *Storm) reflect(ctx, inner context.Context, first pacer.Send) (planned int64) {
	if !clusters.Pause(ctx, time.Until(s.Start.Add(first.At))) {
		return 0
	}
	at, backoff, end := first.At, s.Plan.Backoff(int(first.Agent)), s.Start.Add(s.Plan.Length)
	for got := (reply{}); at < s.Plan.Length && ctx.Err() == nil; at = time.Since(s.Start) {
		version, ok := got.version, true
		lists := version == "" && !s.WatchList
		if lists {
			planned++
			got, ok = s.retrying(inner, task{Send: pacer.Send{At: at, Agent: first.Agent, Kind: listKind}}, backoff)
			version, at = got.version, time.Since(s.Start)
		}
		watches := s.WatchList || s.Expect == http.StatusOK // an agent that may not list does not watch
		if ok && watches {
			planned++
			got, ok = s.retrying(inner, task{pacer.Send{At: at, Agent: first.Agent, Kind: watchKind}, 1, version}, backoff)
			got.version = version
		}
		// A watch that ends at once is also a failure (VeryShortWatchError).
		if !ok || got.watchedFor < time.Second {
			got.version = ""
			clusters.Pause(ctx, min(backoff.Next(), time.Until(end)))
		}
	}
	return planned
}

// anyVersion asks for what the server has, however old that is. initialEvents asks for the same as the first events of
// a watch.
const (
	anyVersion    = "resourceVersion=0"
	initialEvents = "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true"
)

// beginAt returns the query of a request with where it begins: at the version of a list, or with what exists.
func (s *Storm) beginAt(query string, next task) string {
	switch {
	case next.version != "":
		return strings.Replace(query, anyVersion, "resourceVersion="+next.version, 1)
	case s.WatchList && next.Kind == watchKind:
		return strings.Replace(query, anyVersion, initialEvents, 1)
	}
	return query
}

// versionOf returns the resource version of a list, which is sent as protobuf, or 0, which means any version, for
// anything else.
func versionOf(body io.Reader) (string, error) {
	data, err := io.ReadAll(body)
	var answer runtime.Unknown
	var list metav1.List // enough of a PodList
	if data, ok := bytes.CutPrefix(data, []byte("k8s\x00")); !ok || answer.Unmarshal(data) != nil || list.Unmarshal(answer.Raw) != nil {
		return "0", err
	}
	return list.ResourceVersion, err
}
