package reference

import (
	"time"

	"github.com/authzconf/authzconf/engine/recorder"
)

// PKI is an authority with one certificate for each side. The authority's key is thrown away.
type PKI struct{ *recorder.PKI }

// NewPKI makes certificates for the loopback addresses. The two ends are when the serving and the client
// certificate expire, which lets a test have expired ones.
func NewPKI(servingEnd, clientEnd time.Time) (*PKI, error) {
	p, err := recorder.NewPKI(servingEnd, clientEnd)
	return &PKI{p}, err
}
