package population

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/loadgen/process"
	"github.com/authzconf/authzconf/loadgen/profile"
)

func TestTmpSpeed(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("NODES"))
	var args []string
	if a := os.Getenv("XARGS"); a != "" {
		args = append(args, a)
	}
	plane, err := local.Start(t.Context(), local.Options{Binaries: &local.Binaries{}, KubeAPIServerArgs: args, EtcdArgs: []string{"--quota-backend-bytes=8589934592"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plane.Stop() }()
	p := profile.Defaults()
	p.Agents = n - 1
	p.Comparisons = []profile.Comparison{{Name: "aa", A: profile.Side{Arm: "none", Server: profile.GateOff}, B: profile.Side{Arm: "none", Server: profile.GateOff}}}
	go func() {
		time.Sleep(3 * time.Second)
		c, _ := rest.HTTPClientFor(plane.Admin())
		r, err := c.Get(plane.Admin().Host + "/debug/pprof/profile?seconds=8")
		if err == nil {
			f, _ := os.Create("/tmp/h-b-tmp/api.prof")
			_, _ = io.Copy(f, r.Body)
			f.Close()
			r.Body.Close()
		}
	}()
	_ = http.StatusOK
	self := os.Getpid()
	pids := plane.PIDs()
	c0, s0, e0 := process.CPU(self), process.CPU(pids.KubeAPIServer), process.CPU(pids.Etcd)
	begin := time.Now()
	var last time.Time
	_, err = Create(context.Background(), plane.Admin(), &p, func(d, total int64) {
		if d%5000 == 0 && time.Since(last) > time.Second {
			last = time.Now()
			fmt.Println(d, total, time.Since(begin))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	pods := n*30 + n - 1
	fmt.Printf("%d pods in %s: %.0f pods/s; cpu self %s server %s etcd %s rss %d\n", pods, took, float64(pods)/took.Seconds(), process.CPU(self)-c0, process.CPU(pids.KubeAPIServer)-s0, process.CPU(pids.Etcd)-e0, process.RSS(pids.KubeAPIServer)>>20)
}
