package kind

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"

	kindcluster "sigs.k8s.io/kind/pkg/cluster"
)

// providerVariable names the container engine for kind, as for kind's own command line.
const providerVariable = "KIND_EXPERIMENTAL_PROVIDER"

// program is the client of a container engine that kind can use.
type program struct {
	name string // of the program
	// option makes kind use it.
	option func() kindcluster.ProviderOption
	// versionPrefix is the beginning of what the program prints as its version.
	versionPrefix string
	// serverVersion, storage and clusterOf are templates for --format: the version of the engine, the folder of its
	// storage, and the cluster that a container's label names. networkOptions are the options of a new network.
	serverVersion, storage, clusterOf string
	networkOptions                    []string
}

// programs are in the order in which kind looks for them (DetectNodeProvider).
var programs = []program{
	dockerLike("docker", "Docker version", kindcluster.ProviderWithDocker),
	dockerLike("nerdctl", "nerdctl version", func() kindcluster.ProviderOption { return kindcluster.ProviderWithNerdctl("nerdctl") }),
	dockerLike("finch", "finch version", func() kindcluster.ProviderOption { return kindcluster.ProviderWithNerdctl("finch") }),
	{
		name: "podman", versionPrefix: "podman version", option: kindcluster.ProviderWithPodman,
		serverVersion: "{{.Client.Version}}", storage: "{{.Store.GraphRoot}}", clusterOf: `{{index .Labels "` + clusterLabel + `"}}`,
	},
}

func dockerLike(name, versionPrefix string, option func() kindcluster.ProviderOption) program {
	return program{
		name: name, versionPrefix: versionPrefix, option: option,
		serverVersion: "{{.Server.Version}}", storage: "{{.DockerRootDir}}", clusterOf: `{{.Label "` + clusterLabel + `"}}`,
		networkOptions: []string{"--opt", "com.docker.network.bridge.enable_ip_masquerade=true"},
	}
}

// errNoProgram is the error on a machine without a client of a container engine.
var errNoProgram = errors.New("there is no program docker, nerdctl, finch or podman")

// findProgram returns the program that kind uses here: the one that the environment names, or else the first that
// exists.
func findProgram(ctx context.Context) (program, error) {
	name := os.Getenv(providerVariable)
	for _, p := range programs {
		switch {
		case p.name == name:
			return p, nil
		case name == "" && p.isThere(ctx):
			return p, nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return program{}, context.Cause(ctx)
	case name == "":
		return program{}, errNoProgram
	}
	return program{}, errors.New(providerVariable + "=" + name + ": expected docker, nerdctl, finch or podman")
}

// isThere reports whether the program can be run and is what its name says. docker may be a link to podman.
func (p program) isThere(ctx context.Context) bool {
	out, err := exec.CommandContext(ctx, p.name, "-v").Output()
	return err == nil && strings.HasPrefix(string(out), p.versionPrefix)
}

// provider returns kind's provider with the same program.
func (p program) provider(options ...kindcluster.ProviderOption) *kindcluster.Provider {
	return kindcluster.NewProvider(append(options, p.option())...)
}
