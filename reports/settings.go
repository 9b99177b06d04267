package reports

import (
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/verdicts"
)

// Settings are what an API server has switched off that is on by default.
type Settings struct {
	AdmissionOff []string `json:"admissionOff,omitempty"` // admission plugins, sorted
	MetricsOff   int      `json:"metricsOff,omitempty"`   // how many metric families
}

// These are arguments that switch off something that an API server has by default.
const (
	admissionFlag = "--disable-admission-plugins="
	metricsFlag   = "--disabled-metrics="
)

// ReadSettings returns what the arguments of an API server switch off.
func ReadSettings(args []string) (s Settings) {
	for _, arg := range args {
		if list, found := strings.CutPrefix(arg, admissionFlag); found {
			s.AdmissionOff = append(s.AdmissionOff, strings.Split(list, ",")...)
		}
		if list, found := strings.CutPrefix(arg, metricsFlag); found {
			s.MetricsOff += len(strings.Split(list, ","))
		}
	}
	slices.Sort(s.AdmissionOff)
	return s
}

// Admission returns the admission plugins that are off, as a text.
func (s Settings) Admission() string {
	if len(s.AdmissionOff) == 0 {
		return "none"
	}
	return strings.Join(s.AdmissionOff, ", ")
}

// judgeSettings returns how the settings of the API server differ from the requested ones or, if a cell asks for
// default settings, from those.
func (w *Witness) judgeSettings(cell verdicts.Cell) (mismatches []string) {
	requestedSettings := w.AskedSettings
	if requestedSettings == nil {
		if cell.Unchanged {
			mismatches = append(mismatches, "settings: nothing says what was asked for")
		}
		return mismatches
	}
	if cell.Unchanged {
		mismatches = mismatch(mismatches, "admission plugins off", "none", requestedSettings.Admission())
		mismatches = mismatch(mismatches, "metric families off", "0", fmt.Sprint(requestedSettings.MetricsOff))
	}
	if w.SeenSettings == nil {
		return append(mismatches, "settings: the witness did not read them")
	}
	mismatches = mismatch(mismatches, "admission plugins off (dry run)", requestedSettings.Admission(), w.SeenSettings.Admission())
	mismatches = mismatch(
		mismatches,
		"metric families off (metric)",
		fmt.Sprint(requestedSettings.MetricsOff),
		fmt.Sprint(w.SeenSettings.MetricsOff),
	)
	if len(w.Arguments) > 0 {
		arguments := ReadSettings(w.Arguments)
		mismatches = mismatch(mismatches, "admission plugins off (command line)", requestedSettings.Admission(), arguments.Admission())
		mismatches = mismatch(
			mismatches,
			"metric families off (command line)",
			fmt.Sprint(requestedSettings.MetricsOff),
			fmt.Sprint(arguments.MetricsOff),
		)
	}
	return mismatches
}
