package scenarios

import "embed"

// FS holds the scenarios that come with authzconf: every folder of this
// package, so that a new one needs no change here. Load it together with the
// fixtures of package fixtures.
//
//go:embed */*
var FS embed.FS
