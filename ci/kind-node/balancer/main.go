// Command balancer stands in for envoy as kind's load balancer, where envoy's image cannot be had. kind starts it with
// -c FILE; that file names two others, in which kind writes the port to listen on and the API servers behind it. Like envoy it
// sends connections to those that are healthy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/clusters/balancer"
)

// poll is the pause between two looks at the files.
const poll = 200 * time.Millisecond

func main() {
	path := flag.String("c", "", "envoy's configuration, as kind writes it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := serve(ctx, *path)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// serve balances as the files say, until ctx ends.
func serve(ctx context.Context, path string) error {
	files, err := readFiles(path)
	if err != nil {
		return err
	}
	var running *balancer.Balancer
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	var known []string
	for {
		address, backends, err := files.read()
		backends = chooseHealthy(ctx, backends)
		switch {
		case err != nil:
			log.Print(err) // kind writes the files anew after it has started this
		case address == "", slices.Equal(backends, known):
		case running == nil:
			if running, err = balancer.StartAt(address, backends...); err != nil {
				return err
			}
			known = backends
			log.Printf("listening on %s before %q", address, backends)
		default:
			running.Set(backends...)
			known = backends
			log.Printf("now before %q", backends)
		}
		select {
		case <-ctx.Done():
			if running == nil {
				return nil
			}
			return running.Close()
		case <-ticker.C:
		}
	}
}

// files are the paths of the two files that say where to listen and what is behind.
type files struct{ listeners, clusters string }

func readFiles(path string) (files, error) {
	var config struct {
		DynamicResources struct {
			CDS source `json:"cds_config"`
			LDS source `json:"lds_config"`
		} `json:"dynamic_resources"`
	}
	if err := readYAML(path, &config); err != nil {
		return files{}, err
	}
	found := files{listeners: config.DynamicResources.LDS.Path(), clusters: config.DynamicResources.CDS.Path()}
	if found.listeners == "" || found.clusters == "" {
		return files{}, fmt.Errorf("%s does not name the files of its listeners and clusters", path)
	}
	return found, nil
}

type source struct {
	PathConfigSource struct {
		Path string `json:"path"`
	} `json:"path_config_source"`
}

// Path returns the file that the source is.
func (s source) Path() string { return s.PathConfigSource.Path }

// socket is an address of envoy's configuration.
type socket struct {
	SocketAddress struct {
		Address string `json:"address"`
		Port    int    `json:"port_value"`
	} `json:"socket_address"`
}

func (s socket) String() string {
	return net.JoinHostPort(s.SocketAddress.Address, strconv.Itoa(s.SocketAddress.Port))
}

// read returns where to listen and what is behind; nothing as long as kind has not written it.
func (f files) read() (address string, backends []string, err error) {
	var listeners struct {
		Resources []struct {
			Address socket `json:"address"`
		} `json:"resources"`
	}
	var clusters struct {
		Resources []struct {
			LoadAssignment struct {
				Endpoints []struct {
					LBEndpoints []struct {
						Endpoint struct {
							Address socket `json:"address"`
						} `json:"endpoint"`
					} `json:"lb_endpoints"`
				} `json:"endpoints"`
			} `json:"load_assignment"`
		} `json:"resources"`
	}
	if err := errors.Join(readYAML(f.listeners, &listeners), readYAML(f.clusters, &clusters)); err != nil {
		return "", nil, err
	}
	for _, l := range listeners.Resources {
		address = l.Address.String()
	}
	for _, c := range clusters.Resources {
		for _, locality := range c.LoadAssignment.Endpoints {
			for _, e := range locality.LBEndpoints {
				backends = append(backends, e.Endpoint.Address.String())
			}
		}
	}
	if len(backends) == 0 {
		return "", nil, nil
	}
	return address, backends, nil
}

func readYAML(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
