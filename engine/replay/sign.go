package replay

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/authzconf/authzconf/scenarios"
)

// signAgain gives a token the times of a scenario, and signs it as the API server of our own control planes does: ES256.
func signAgain(token string, sa *scenarios.ServiceAccount, pem []byte) (string, error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(pem)
	key, ok := parsed.(*ecdsa.PrivateKey)
	parts := strings.Split(token, ".")
	if err != nil || !ok || len(parts) != 3 {
		return "", errors.Join(errors.New("the token cannot be signed again"), err)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	claims := map[string]any{}
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err != nil {
		return "", fmt.Errorf("the claims of a token: %w", err)
	}
	for claim := range sa.Times {
		in := claims
		if private, ok := claims["kubernetes.io"].(map[string]any); ok && claim == "warnafter" {
			in = private
		}
		in[claim] = time.Now().Add(sa.At(claim)).Unix()
	}
	if payload, err = json.Marshal(claims); err != nil {
		return "", err
	}
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(payload)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}
