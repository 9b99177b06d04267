package kind

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/authzconf/authzconf/clusters/local"
)

// minFreeBytes is what the engine's disk must have free: two nodes write some 1.5 GB over their image.
const minFreeBytes = 3 << 30

// docker runs a command of docker's client, and returns the text that it prints.
func docker(ctx context.Context, args ...string) (string, error) {
	out, err := dockerBytes(ctx, nil, args...)
	return strings.TrimSpace(string(out)), err
}

// dockerBytes is docker for output that is not text, with input if there is any.
func dockerBytes(ctx context.Context, input io.Reader, args ...string) ([]byte, error) {
	var out, problems bytes.Buffer
	c := exec.CommandContext(ctx, "docker", args...)
	c.Stdin, c.Stdout, c.Stderr = input, &out, &problems
	if err := c.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("docker %s: %s", args[0], cmp.Or(strings.TrimSpace(problems.String()), err.Error()))
	}
	return out.Bytes(), nil
}

// CheckEngine says what is missing on this machine to run clusters at all.
func CheckEngine(ctx context.Context) error {
	if _, err := exec.LookPath("docker"); err != nil {
		return &local.UsageError{Problem: "there is no program docker", Hint: "kind needs a container engine; ci/kind-node/README.md says how to have one", Err: err}
	}
	if _, err := docker(ctx, "version", "--format", "{{.Server.Version}}"); err != nil {
		if ctx.Err() != nil {
			return err
		}
		where := os.Getenv("DOCKER_HOST")
		if where == "" {
			where = "docker's usual address (DOCKER_HOST is not set)"
		}
		return &local.UsageError{
			Problem: fmt.Sprintf("no container engine answers at %s: %v", where, err),
			Hint:    `start one, for example with eval "$(ci/kind-node/engine start)"`, Err: err,
		}
	}
	return checkDisk(ctx)
}

// checkDisk looks at the disk of an engine on this machine.
func checkDisk(ctx context.Context) error {
	root, err := docker(ctx, "info", "--format", "{{.DockerRootDir}}")
	if err != nil {
		return err
	}
	var s unix.Statfs_t
	if unix.Statfs(root, &s) != nil {
		return nil //nolint:nilerr // an engine elsewhere, whose disk cannot be seen
	}
	if free := s.Bavail * uint64(s.Bsize); free < minFreeBytes {
		return &local.UsageError{
			Problem: fmt.Sprintf("the container engine's disk (%s) has %d MiB free, and a cluster needs %d", root, free>>20, minFreeBytes>>20),
			Hint:    "docker system prune, or authzconf clean, may free some",
		}
	}
	return nil
}

// ImageVersion returns the version of Kubernetes in a node image, without a v. It pulls the image if it is not
// there, and proves that the engine runs privileged containers, as kind's nodes are.
func ImageVersion(ctx context.Context, image string) (string, error) {
	if _, err := docker(ctx, "image", "inspect", "--format", "{{.Id}}", image); err != nil {
		if _, err := docker(ctx, "pull", "--quiet", image); err != nil {
			if ctx.Err() != nil {
				return "", err
			}
			return "", &local.UsageError{
				Problem: fmt.Sprintf("the node image %s is not there and cannot be pulled: %v", image, err),
				Hint:    "name another with --kind-node-image; make kind-node-image KUBERNETES=1.37 builds one without a registry", Err: err,
			}
		}
	}
	out, err := docker(ctx, "run", "--rm", "--privileged", "--network", "none", "--entrypoint", "cat", image, "/kind/version")
	if err != nil {
		if ctx.Err() != nil {
			return "", err
		}
		if strings.Contains(err.Error(), "unable to apply caps") || strings.Contains(err.Error(), "operation not permitted") {
			return "", &local.UsageError{
				Problem: fmt.Sprintf("the container engine cannot run privileged containers: %v", err),
				Hint:    `kind's nodes are such; eval "$(ci/kind-node/engine start)" starts an engine that can`, Err: err,
			}
		}
		return "", &local.UsageError{Problem: fmt.Sprintf("%s is not a node image of kind: %v", image, err), Hint: "a node image says its version in /kind/version", Err: err}
	}
	version, found := strings.CutPrefix(out, "v")
	if !found {
		return "", &local.UsageError{Problem: fmt.Sprintf("%s is not a node image of kind: /kind/version is %.40q", image, out)}
	}
	return version, nil
}

// Leftovers are the clusters of authzconf whose run is over: they were kept, or their process was killed.
func Leftovers(ctx context.Context) ([]string, error) {
	out, err := docker(ctx, "ps", "--all", "--filter", "label="+clusterLabel, "--format", `{{.Label "`+clusterLabel+`"}}`)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range strings.Fields(out) {
		if strings.HasPrefix(name, NamePrefix) && !slices.Contains(names, name) && !inUse(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Remove deletes a cluster with all that belongs to it.
func Remove(ctx context.Context, name string) error {
	return errors.Join(removeContainers(ctx, name), removeState(name))
}

// clusterLabel is how kind marks its containers.
const clusterLabel = "io.x-k8s.kind.cluster"

// removeContainers is what kind's Delete does, and can be interrupted. What is gone already is not an error.
func removeContainers(ctx context.Context, name string) error {
	out, err := docker(ctx, "ps", "--all", "--quiet", "--filter", "label="+clusterLabel+"="+name)
	if err != nil {
		return err
	}
	ids := strings.Fields(out)
	if len(ids) == 0 {
		return nil
	}
	_, err = docker(ctx, append([]string{"rm", "--force", "--volumes"}, ids...)...)
	return err
}
