package reports

// What the tests of the pages in a browser need.
var (
	TestTexts   = testTexts
	MixedRun    = mixedRun
	ChangeTexts = changeTexts
	ChangeRun   = changeRun
)
