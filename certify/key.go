package certify

import "github.com/authzconf/authzconf/reports/record"

// Key signs, if it is private, and verifies.
type Key = record.Key

// The keys and statements of certification are those of every record.
var (
	LoadKey = record.LoadKey
	NewKey  = record.NewKey

	signFiles     = record.SignFiles
	openStatement = record.OpenStatement
	parseEnvelope = record.ParseEnvelope
	digest        = record.Digest
)
