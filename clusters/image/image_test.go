package image_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"testing"

	"github.com/authzconf/authzconf/clusters/image"
)

var agent = image.Image{
	Name:         "example.test/agent:1",
	Architecture: "amd64",
	Program:      []byte("\x7fELF program"),
	Path:         "/agent",
	User:         65532,
}

func written(t *testing.T, i image.Image) []byte {
	t.Helper()
	out, err := i.Archive()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// files reads a tar, and checks that nothing in it depends on who wrote it when.
func files(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 0 || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s: time %s, owner %d:%d", h.Name, h.ModTime, h.Uid, h.Gid)
		}
		if all[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWrite reads the archive from its manifest to the program, as an importer does.
func TestWrite(t *testing.T) {
	all := files(t, written(t, agent))
	var manifests []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(all["manifest.json"], &manifests); err != nil {
		t.Fatal(err)
	}
	if len(manifests) != 1 || !reflect.DeepEqual(manifests[0].RepoTags, []string{agent.Name}) || len(manifests[0].Layers) != 1 {
		t.Fatalf("manifest %+v", manifests)
	}
	layer := all[manifests[0].Layers[0]]
	if got := files(t, layer); len(got) != 1 || !bytes.Equal(got["agent"], agent.Program) {
		t.Errorf("the layer has %d files, agent is %q", len(got), got["agent"])
	}
	var config struct {
		Architecture, OS string
		Config           struct {
			User       string
			Entrypoint []string
		}
		RootFS struct {
			Type    string
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(all[manifests[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(layer)
	if want := []string{"sha256:" + hex.EncodeToString(sum[:])}; !reflect.DeepEqual(config.RootFS.DiffIDs, want) {
		t.Errorf("diff_ids %q, want %q", config.RootFS.DiffIDs, want)
	}
	if config.OS != "linux" || config.Architecture != "amd64" || config.Config.User != "65532" ||
		!reflect.DeepEqual(config.Config.Entrypoint, []string{"/agent"}) {
		t.Errorf("config %+v", config)
	}
}

func TestWriteIsDeterministic(t *testing.T) {
	if !bytes.Equal(written(t, agent), written(t, agent)) {
		t.Error("the same image was written differently")
	}
	other := agent
	other.Program = []byte("another")
	if bytes.Equal(written(t, agent), written(t, other)) {
		t.Error("another program made the same archive")
	}
}

func TestWriteSaysWhatFailed(t *testing.T) {
	bad := agent
	bad.Path = "/\x00"
	if _, err := bad.Archive(); err == nil {
		t.Error("a path that no archive can hold was taken")
	}
}
