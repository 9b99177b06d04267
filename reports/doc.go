// Package reports holds the conformance report and what is made of it.
//
// A report is a folder. report.yaml (a ConformanceReport) is the claim; evidence/ holds what was seen,
// scenarios/ and fixtures/ the exact texts that were run, so that Verify, or anybody, can recompute the claim
// without the server, without the network and without trust in who ran it. report.html, summary.md and junit.xml
// show the same to people and to CI systems.
//
// What a report says follows from results alone (Complete, Conclude): there is no field that a run can set to
// "passed".
package reports
