package local

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/authzconf/authzconf/fixtures"
)

// Sources of programs that neither the environment names nor the cache has.
const (
	// Auto is the official release, or a build where that cannot be had; Official nothing but the one, Build the other.
	Auto     = "auto"
	Official = "official"
	Build    = "build"

	// SourceVariable and MirrorVariable name the environment variables for what [Binaries] leaves unset.
	SourceVariable = "AUTHZCONF_BINARIES"
	MirrorVariable = "AUTHZCONF_BINARIES_MIRROR"
)

// Where a program came from, as reports say it.
const (
	originEnvironment = "environment"
	originPinned      = "official release, digest pinned"
	originBeside      = "official release, digest published beside it"
	originBuilt       = "built from modules"
	originGiven       = "given by the caller"
)

//go:embed versions/official.yaml
var officialYAML []byte

// publication says where a project publishes a program, with places for the version and the architecture.
type publication struct {
	URL string `json:"url"`
	// Beside is where the digest of the file is published; SHA256 are pinned ones, by version and architecture.
	Beside string                       `json:"beside"`
	SHA256 map[string]map[string]string `json:"sha256"`
	// Member is the program's place in the file; empty if the file is the program.
	Member string `json:"member"`
}

var publications = fixtures.Table[map[string]publication]("official.yaml", officialYAML)

// offer is a program as it is published.
type offer struct {
	url, beside, member string
	digest              string // the pinned one; empty if there is none
	origin              string
	target              string // its place in the cache
}

// offer says where a program is published, and where it is kept.
func (b *Binaries) offer(p program) (o offer, err error) {
	cache, err := b.cacheDir()
	if err != nil {
		return o, err
	}
	mirror := cmp.Or(b.Mirror, os.Getenv(MirrorVariable))
	if mirror != "" && !mirrorPattern.MatchString(mirror) {
		return o, &UsageError{Problem: fmt.Sprintf("the mirror of programs %q is not a URL", mirror), Hint: "write it like https://mirror.example.com/programs or file:///srv/programs"}
	}
	of := publications[p.name]
	if b.published != nil {
		of = b.published[p.name]
	}
	expand := strings.NewReplacer("{version}", p.version, "{arch}", runtime.GOARCH)
	o = offer{url: expand.Replace(of.URL), beside: expand.Replace(of.Beside), member: expand.Replace(of.Member)}
	if mirror != "" {
		under := strings.NewReplacer("https:/", strings.TrimSuffix(mirror, "/"))
		o.url, o.beside = under.Replace(o.url), under.Replace(o.beside)
	}
	o.digest, o.origin = of.SHA256[p.version][runtime.GOARCH], originPinned
	if o.digest == "" {
		o.origin = originBeside
	}
	// A program whose digest is pinned later is fetched again.
	o.target = filepath.Join(cache, "bin", fmt.Sprintf("%s-%s-official-%.16s", p.name, p.version, cmp.Or(o.digest, "beside")))
	return o, nil
}

var mirrorPattern = regexp.MustCompile(`^(https?|file)://`)

// cached says whether the program is in the cache, and still is what was published where that can be told.
func (o offer) cached() bool {
	if o.digest == "" || o.member != "" {
		return isFile(o.target)
	}
	digest, err := Digest(o.target)
	return err == nil && digest == o.digest
}

// fetch puts the official program into the cache. Of several processes that want it one does.
func (b *Binaries) fetch(ctx context.Context, p program, o offer) error {
	if runtime.GOOS != "linux" {
		return errors.New("releases are downloaded for Linux only")
	}
	return b.once(ctx, p, o.target, o.cached, func() error {
		d := &download{asked: cmp.Or(b.asked, thisRun), url: o.url, path: o.target + ".partial"}
		begin := time.Now()
		stop := reportEvery(progressInterval, func() {
			b.report("downloading %s %s: %s", p.name, p.version, progress(d.have.Load(), d.total.Load(), time.Since(begin)))
		})
		digest, err := o.digest, error(nil)
		if digest == "" {
			digest, err = d.published(ctx, o.beside)
		}
		if err == nil {
			err = d.whole(ctx, digest)
		}
		stop()
		if err == nil {
			err = o.install(d.path)
		}
		if isDiskFull(err) {
			return noSpace("download", p, filepath.Dir(o.target), "free some 300 MB there, or set "+CacheVariable+" to a folder on another disk", err)
		}
		if err == nil {
			b.report("downloaded %s %s: %s", p.name, p.version, o.origin)
		}
		return err
	})
}

// install makes the program of the file that was fetched, in one step.
func (o offer) install(file string) error {
	if o.member == "" {
		return errors.Join(os.Chmod(file, 0o755), os.Rename(file, o.target))
	}
	archive, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _, _ = archive.Close(), os.Remove(file) }()
	packed, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	members := tar.NewReader(packed)
	for header := (&tar.Header{}); header.Name != o.member; {
		if header, err = members.Next(); err != nil {
			return fmt.Errorf("%s in %s: %w", o.member, path.Base(o.url), err)
		}
	}
	program, err := os.OpenFile(file+"-program", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(program.Name()) }()
	_, err = io.Copy(program, members)
	if err = errors.Join(err, program.Close()); err != nil {
		return err
	}
	return os.Rename(program.Name(), o.target)
}

// digests are those of files that were read in this run, by path, time of change and size.
var digests sync.Map

// Digest is the SHA-256 of a file. It is read once in a run, unless it changes.
func Digest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	key := fmt.Sprint(path, info.ModTime(), info.Size())
	if known, ok := digests.Load(key); ok {
		return fmt.Sprint(known), nil
	}
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	digest := hex.EncodeToString(hash.Sum(nil))
	if err == nil {
		digests.Store(key, digest)
	}
	return digest, err
}
