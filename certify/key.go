package certify

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"
)

const maxKey = 64 << 10

// Key signs, if it is private, and verifies.
type Key struct {
	sv      *signerverifier.ED25519SignerVerifier
	private bool
}

// ParseKey reads an Ed25519 key in PEM, as `openssl genpkey -algorithm ed25519` writes it: a private one in PKCS
// #8, a public one as SubjectPublicKeyInfo.
func ParseKey(raw []byte) (*Key, error) {
	loaded, err := signerverifier.LoadKey(raw)
	switch {
	case err != nil:
		return nil, errors.New("it is not a key in PEM (expected an Ed25519 key, as `authzconf certify keygen` writes it)")
	case loaded.KeyType != signerverifier.ED25519KeyType:
		return nil, fmt.Errorf("it is a key for %s, and only Ed25519 is used here", loaded.KeyType)
	}
	sv, err := signerverifier.NewED25519SignerVerifierFromSSLibKey(loaded)
	if err != nil {
		return nil, errors.New("the key cannot be used")
	}
	return &Key{sv: sv, private: loaded.KeyVal.Private != ""}, nil
}

// LoadKey reads the file of a key. A private one that others can read is refused: it may be somebody else's by
// now.
func LoadKey(path string) (*Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxKey))
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if key.private && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s: others can read this private key (mode %04o, expected 0600)", path, info.Mode().Perm())
	}
	return key, nil
}

// ID is the key's name in envelopes: a digest of its public part.
func (k *Key) ID() string {
	id, _ := k.sv.KeyID() // never fails
	return id
}

// NewKey makes a key and writes it to two new files: the private part, readable by this user only, and beside it
// the public one, with .pub behind its name.
func NewKey(path string) (*Key, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	open, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, err
	}
	raw := pem.EncodeToMemory(&pem.Block{Type: signerverifier.PrivateKeyPEM, Bytes: secret})
	if err := createFile(path, raw, 0o600); err != nil {
		return nil, err
	}
	if err := createFile(path+".pub", pem.EncodeToMemory(&pem.Block{Type: signerverifier.PublicKeyPEM, Bytes: open}), 0o644); err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	return ParseKey(raw)
}

// createFile writes a file that must not be there yet: a key that is overwritten is gone.
func createFile(path string, content []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// Private says whether the key can sign.
func (k *Key) Private() bool { return k.private }
