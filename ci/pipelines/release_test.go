package pipelines

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeGo stands for go: what it builds names its platform, and its modules are two.
const fakeGo = `#!/usr/bin/env bash
if [ "$1" = version ]; then
  printf '%s: go1.26.8\n\tpath\tx\n\tmod\tgithub.com/authzconf/authzconf\t(devel)\n\tdep\texample.com/a\tv1.0.0\th1:x=\n' "$3"
  exit
fi
while [ $# -gt 0 ]; do
  if [ "$1" = -o ]; then echo "$GOOS/$GOARCH" >"$2"; fi
  shift
done
`

// made writes a release with a go that builds nothing.
func made(t *testing.T, folder string, env ...string) {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(fakeGo), 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "../release", "v1.2.3", folder)
	c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	c.Env = append(c.Env, env...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// unpacked are the files of a tar file.
func unpacked(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			files[strings.TrimPrefix(h.Name, "./")] = data
		}
	}
}

// descriptor is one of an OCI image; manifest has what an index, a manifest and a config hold of others.
type (
	descriptor struct {
		MediaType, Digest string
		Size              int
		Platform          struct{ Architecture, OS string }
	}
	manifest struct {
		MediaType, Architecture string
		Manifests, Layers       []descriptor
		Config                  descriptor
		RootFS                  struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
)

// TestRelease wants a release to be the same when it is made again, and an image of both platforms of linux.
func TestRelease(t *testing.T) {
	folder, again := t.TempDir(), t.TempDir()
	made(t, folder)
	made(t, again)
	sums, err := os.ReadFile(filepath.Join(folder, "SHA256SUMS"))
	if err != nil || strings.Count(string(sums), "\n") != 9 {
		t.Fatalf("%v: %s", err, sums)
	}
	if other, _ := os.ReadFile(filepath.Join(again, "SHA256SUMS")); !bytes.Equal(sums, other) {
		t.Errorf("made again it is another one:\n%s\n%s", sums, other)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--quiet", "-c", "SHA256SUMS")
	check.Dir = folder
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	image, err := os.ReadFile(filepath.Join(folder, "authzconf_v1.2.3_image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	files := unpacked(t, bytes.NewReader(image))
	sum := func(data []byte) string {
		s := sha256.Sum256(data)
		return "sha256:" + hex.EncodeToString(s[:])
	}
	read := func(data []byte) (m manifest) {
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		return m
	}
	used := 0
	get := func(d descriptor) []byte {
		data := files["blobs/"+strings.ReplaceAll(d.Digest, ":", "/")]
		if used++; sum(data) != d.Digest || len(data) != d.Size {
			t.Errorf("%+v: has %d bytes, %s", d, len(data), sum(data))
		}
		return data
	}
	index := read(get(read(files["index.json"]).Manifests[0]))
	var platforms []string
	for _, d := range index.Manifests {
		m := read(get(d))
		config := read(get(m.Config))
		layer, err := gzip.NewReader(bytes.NewReader(get(m.Layers[0])))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(layer)
		if err != nil {
			t.Fatal(err)
		}
		program := string(unpacked(t, bytes.NewReader(plain))["authzconf"])
		if config.Architecture != d.Platform.Architecture || !slices.Equal(config.RootFS.DiffIDs, []string{sum(plain)}) ||
			program != "linux/"+config.Architecture+"\n" {
			t.Errorf("%+v has %+v with %q", d, config, program)
		}
		platforms = append(platforms, d.Platform.OS+"/"+d.Platform.Architecture)
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) || used != len(files)-2 {
		t.Errorf("platforms %v, want %v; %d of %d files used", platforms, want, used, len(files))
	}
}

// TestReleaseSigned wants a signature that holds, and not for other checksums.
func TestReleaseSigned(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not installed")
	}
	folder, key := t.TempDir(), filepath.Join(t.TempDir(), "key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	made(t, folder, "SIGN_KEY="+key)
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key+".allowed", append([]byte("owner "), public...), 0o600); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(folder, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	for _, changed := range []bool{false, true} {
		if changed {
			sums[0] ^= 1
		}
		c := exec.CommandContext(
			t.Context(),
			"ssh-keygen",
			"-Y",
			"verify",
			"-f",
			key+".allowed",
			"-I",
			"owner",
			"-n",
			"file",
			"-s",
			filepath.Join(folder, "SHA256SUMS.sig"),
		)
		c.Stdin = bytes.NewReader(sums)
		if out, err := c.CombinedOutput(); (err != nil) != changed {
			t.Errorf("changed %t: %v: %s", changed, err, out)
		}
	}
}
