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
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/usage"
)

// These are the sources of programs that neither the environment names nor the cache has.
const (
	// Auto means the official release, or a build if that is not available. Official means only the first, and Build
	// only the second.
	Auto     = "auto"
	Official = "official"
	Build    = "build"

	// SourceVariable and MirrorVariable name the environment variables for what [Binaries] leaves unset.
	SourceVariable = "AUTHZCONF_BINARIES"
	MirrorVariable = "AUTHZCONF_BINARIES_MIRROR"
)

// These are the origins of a program, as reports state them.
const (
	originEnvironment = "environment"
	originPinned      = "official release, digest pinned"
	originBeside      = "official release, digest published beside it"
	originCI          = "build of CI, digest published beside it"
	originBuilt       = "built from modules"
	originUnpinned    = "built from modules that are not pinned"
	originTree        = "built from a source tree"
	originGiven       = "given by the caller"
)

//go:embed versions/official.yaml
var officialYAML []byte

type publication struct {
	URL string `json:"url"`
	// Beside is the URL of the file's published digest. SHA256 are pinned digests, by version and architecture.
	Beside string                       `json:"beside"`
	SHA256 map[string]map[string]string `json:"sha256"`
	// Member is the path of the program within the file. It is empty if the file is the program.
	Member string `json:"member"`
	// CI and BesideCI are URL and Beside for builds of CI. Markers is the place of the files that name the newest
	// versions.
	CI       string `json:"ci"`
	BesideCI string `json:"besideCI"`
	Markers  string `json:"markers"`
}

var publications = fixtures.Table[map[string]publication]("official.yaml", officialYAML)

// CheckProgram returns why a program cannot be what the witness says of it. It must come from one of the possible
// origins. If there are pinned digests for its version, on any machine, its digest must be one of them, unless it was
// taken out of an archive: then the digest of the program itself is not known.
func CheckProgram(origin, name, version, digest string) error {
	source := publications[name]
	switch origin {
	case originEnvironment, originGiven:
		if version != "" {
			return fmt.Errorf("%s was chosen by the user, and is said to be of version %s", name, version)
		}
	case originBeside, originBuilt, originPinned, originCI, originUnpinned, originTree:
		if version == "" {
			return fmt.Errorf("%s should belong to the %s, but nothing says which version it is", name, origin)
		}
		if origin == originPinned && source.Member == "" && !slices.Contains(slices.Collect(maps.Values(source.SHA256[version])), digest) {
			return fmt.Errorf("%s %s should belong to the %s, but %s is not that digest", name, version, origin, digest)
		}
	default:
		return fmt.Errorf("%s is said to come from %q, which is nowhere that programs come from", name, origin)
	}
	return nil
}

type offer struct {
	url, beside, member string
	digest              string // the pinned digest; empty if there is none
	origin              string
	target              string // its place in the cache
}

func (b *Binaries) offer(p program) (o offer, err error) {
	cache, err := b.cacheDir()
	if err != nil {
		return o, err
	}
	source := b.publication(p.name)
	if isCI(p.version) {
		source.URL, source.Beside = source.CI, source.BesideCI
	}
	expand := strings.NewReplacer("{version}", p.version, "{arch}", runtime.GOARCH)
	o.member = expand.Replace(source.Member)
	if o.url, err = b.mirrored(expand.Replace(source.URL)); err != nil {
		return o, err
	}
	if o.beside, err = b.mirrored(expand.Replace(source.Beside)); err != nil {
		return o, err
	}
	o.digest, o.origin = source.SHA256[p.version][runtime.GOARCH], originPinned
	switch {
	case isCI(p.version):
		o.origin = originCI
	case o.digest == "":
		o.origin = originBeside
	}
	// A program whose digest is pinned later is downloaded again.
	o.target = filepath.Join(cache, "bin", fmt.Sprintf("%s-%s-official-%.16s", p.name, p.version, cmp.Or(o.digest, "beside")))
	return o, nil
}

// publication returns where a program is published.
func (b *Binaries) publication(name string) publication {
	if b.published != nil {
		return b.published[name]
	}
	return publications[name]
}

// mirrored returns the URL in the mirror, if there is one, for a published URL.
func (b *Binaries) mirrored(url string) (string, error) {
	mirror := cmp.Or(b.Mirror, os.Getenv(MirrorVariable))
	if mirror == "" {
		return url, nil
	}
	if !mirrorPattern.MatchString(mirror) {
		return "", &usage.Error{
			Problem: fmt.Sprintf("the mirror of programs %q is not a URL", mirror),
			Hint:    "write it like https://mirror.example.com/programs or file:///srv/programs",
		}
	}
	return strings.ReplaceAll(url, "https:/", strings.TrimSuffix(mirror, "/")), nil
}

var mirrorPattern = regexp.MustCompile(`^(https?|file)://`)

// cached reports whether the program is in the cache and, where that can be checked, still is what was published.
func (o offer) cached() bool {
	if o.digest == "" || o.member != "" {
		return isFile(o.target)
	}
	digest, err := Digest(o.target)
	return err == nil && digest == o.digest
}

// fetch downloads the official program into the cache. If several processes want it, one of them does.
func (b *Binaries) fetch(ctx context.Context, p program, o offer) error {
	if runtime.GOOS != "linux" {
		return errors.New("releases are downloaded for Linux only")
	}
	return b.once(ctx, p, o.target, o.cached, func() error {
		d := &download{hostAnswers: cmp.Or(b.hostAnswers, thisRun), url: o.url, path: o.target + ".partial"}
		begin := time.Now()
		stop := reportEvery(progressInterval, func() {
			b.report("downloading %s %s: %s", p.name, p.version, progress(d.have.Load(), d.total.Load(), time.Since(begin)))
		})
		digest, err := o.digest, error(nil)
		if digest == "" {
			digest, err = d.fetchDigest(ctx, o.beside)
		}
		if err == nil {
			err = d.fetchVerified(ctx, digest)
		}
		stop()
		if err == nil {
			err = o.install(d.path)
		} else if d.have.Load() == 0 {
			_ = os.Remove(d.path) // nothing to go on with
		}
		if isDiskFull(err) {
			return noSpace(
				"download",
				p,
				filepath.Dir(o.target),
				"free some 300 MB there, or set "+CacheVariable+" to a folder on another disk",
				err,
			)
		}
		if err == nil {
			b.report("downloaded %s %s: %s", p.name, p.version, o.origin)
		}
		return err
	})
}

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

// digests are the digests of files that were read in this run, by path, time of change and size.
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

const (
	// answerTimeout is how long a run waits, in all, for hosts that have not answered yet.
	answerTimeout = 3 * time.Second
	// stallTimeout is how long a download may make no progress. retries is how often in a row it may break off without
	// progress.
	stallTimeout = 20 * time.Second
	retries      = 3
	pause        = 250 * time.Millisecond // before a new attempt, doubled each time
)

// hostAnswers is what a run knows about the hosts that it asked, so that those which do not answer cost time only once.
type hostAnswers struct {
	silent sync.Map     // hosts that did not answer
	waited atomic.Int64 // how long it waited for them, in ns
}

var thisRun = &hostAnswers{}

// errSilent is the error for a host that is not asked again. The error of the first attempt wraps it.
var errSilent = errors.New("nothing answers")

// client returns a client that uses the proxies of the environment, as net/http does. A folder can be a mirror, too.
var client = sync.OnceValue(func() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // as it is documented
	transport.DisableCompression = true                          // lengths and ranges are those of the file itself
	transport.RegisterProtocol("file", http.NewFileTransport(http.Dir("/")))
	return &http.Client{Transport: transport}
})

// refusal is an answer that will be the same the next time.
type refusal string

func (r refusal) Error() string { return string(r) }

type download struct {
	*hostAnswers
	url, path   string
	have, total atomic.Int64
}

// fetchVerified downloads the file with this digest. It continues what an earlier run left, if that is of the same file.
func (d *download) fetchVerified(ctx context.Context, digest string) error {
	_, statErr := os.Stat(d.path)
	if err := d.fetchAll(ctx); err != nil {
		return err
	}
	got, err := Digest(d.path)
	if err != nil || got == digest {
		return err
	}
	if err := os.Remove(d.path); err != nil {
		return err
	}
	if statErr == nil {
		return d.fetchVerified(ctx, digest)
	}
	return fmt.Errorf("%s is not what was published: its SHA-256 is %s, not %s", d.url, got, digest)
}

// fetchAll downloads the file to its end. It continues where it broke off, as long as there is progress.
func (d *download) fetchAll(ctx context.Context) error {
	for failures := 0; ; failures++ {
		before := d.have.Load()
		err := d.rest(ctx)
		if err == nil || ctx.Err() != nil || isFinal(err) {
			return err
		}
		if d.have.Load() > before {
			failures = 0
		}
		if failures == retries {
			return fmt.Errorf("the download broke off at %d of %d bytes: %w", d.have.Load(), d.total.Load(), err)
		}
		clusters.Pause(ctx, pause<<failures)
	}
}

// isFinal reports whether another attempt to download is useless: the host refuses or does not answer, or the file
// cannot be written.
func isFinal(err error) bool {
	_, refused := errors.AsType[refusal](err)
	_, isFileError := errors.AsType[*fs.PathError](err)
	return refused || isFileError || errors.Is(err, errSilent)
}

func (d *download) rest(ctx context.Context) error {
	file, err := os.OpenFile(d.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	have := info.Size()
	d.have.Store(have)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url, nil)
	if err != nil {
		return err
	}
	if have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	host, begin, timeout := req.URL.Host, time.Now(), answerTimeout-time.Duration(d.waited.Load())
	if _, silent := d.silent.Load(host); silent || timeout <= 0 {
		return errSilent
	}
	watch := time.AfterFunc(timeout, func() { cancel(errors.New("nothing came for too long")) })
	defer watch.Stop()
	resp, err := client().Do(req)
	if err != nil {
		if d.total.Load() > 0 { // it did answer
			return err
		}
		d.silent.Store(host, true)
		d.waited.Add(int64(time.Since(begin)))
		return fmt.Errorf("%w: %w", errSilent, err)
	}
	defer func() { _ = resp.Body.Close() }()
	isRangeRefused := resp.StatusCode == http.StatusRequestedRangeNotSatisfiable
	switch {
	case resp.StatusCode >= 500:
		return fmt.Errorf("%s: %s", d.url, resp.Status)
	case resp.StatusCode >= 400 && !isRangeRefused:
		return refusal(d.url + ": " + resp.Status)
	case have > 0 && resp.StatusCode != http.StatusPartialContent: // it does not have this rest, or sends the whole file
		d.have.Store(0)
		if err := file.Truncate(0); err != nil || isRangeRefused {
			return errors.Join(err, errors.New("what is there of the file is not its beginning"))
		}
	}
	watch.Reset(stallTimeout)
	d.total.Store(d.have.Load() + max(0, resp.ContentLength))
	_, err = io.Copy(io.MultiWriter(file, meter{d, watch}), resp.Body)
	return errors.Join(err, file.Close())
}

type meter struct {
	*download
	watch *time.Timer
}

func (m meter) Write(p []byte) (int, error) {
	m.have.Add(int64(len(p)))
	m.watch.Reset(stallTimeout)
	return len(p), nil
}

// fetchDigest returns the published digest of the file, which is at a URL of its own.
func (d *download) fetchDigest(ctx context.Context, digestURL string) (string, error) {
	list := &download{hostAnswers: d.hostAnswers, url: digestURL, path: d.path + "-sha256"}
	defer func() { _ = os.Remove(list.path) }()
	_ = os.Remove(list.path)
	if err := list.fetchAll(ctx); err != nil {
		return "", err
	}
	text, err := os.ReadFile(list.path)
	digest := digestOf(string(text), path.Base(d.url))
	if err == nil && digest == "" {
		err = fmt.Errorf("%s has no SHA-256 of %s", digestURL, path.Base(d.url))
	}
	return digest, err
}

// digestOf finds the digest of a file in the output format of sha256sum, with or without names. It returns "" if there
// is none.
func digestOf(text, name string) string {
	for line := range strings.Lines(text) {
		fields := append(strings.Fields(line), name)
		if len(fields) > 1 && len(fields[0]) == 64 && strings.TrimPrefix(fields[1], "*") == name {
			return fields[0]
		}
	}
	return ""
}
