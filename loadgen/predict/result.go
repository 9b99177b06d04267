package predict

import (
	"github.com/authzconf/authzconf/oracle"
)

// Prediction is what a plan leads to. All rates are per second.
type Prediction struct {
	Plan Plan `json:"plan"`
	// Answers are in words what the figures say, one for each question.
	Answers []Line `json:"answers"`
	// Situations are the states of gate and permissions, in the order of the move to constrained impersonation.
	Situations []Outcome `json:"situations"`
	// Assumes says in sentences what the figures rest on.
	Assumes []string `json:"assumes"`
	// NotSimulated says why there is no simulation; empty if there is one.
	NotSimulated string `json:"notSimulated,omitempty"`
}

// Outcome is what is predicted for one situation.
type Outcome struct {
	Situation
	// Name is the situation in words.
	Name string `json:"name"`
	// Modes are those that succeed, by workload; empty where the requests are refused.
	Modes map[string]oracle.Mode `json:"modes"`
	// Requests is how many impersonated requests there are.
	Requests float64 `json:"requestsPerSecond"`
	// Steady is the long run: each API server has been running for long, and everybody asks in their own time.
	Steady Figures `json:"steady"`
	// Questions is how many different ones the webhook is asked in the long run, by the API server that asks most.
	Questions int `json:"questions"`
	// Kinds has the long run by what the checks are about, and Levels by where the request is dispatched.
	Kinds  []KindFigures  `json:"byKind"`
	Levels []LevelFigures `json:"byPriorityLevel"`
	// First is the mean of the first ten seconds (of the time for which a success is remembered) of API servers that
	// have all just started.
	First Figures `json:"firstTenSeconds"`
	// Restart is the mean of the time in which everybody who was connected to one API server comes back after its restart.
	Restart Figures `json:"restart"`
	// Rollout is the mean of the time in which one DaemonSet of each workload, or all pods of a deputy, are new.
	Rollout Figures `json:"rollout"`
	// Expiry is the highest second after a restart, when what was remembered then is forgotten together. The closed form
	// is as if everything were forgotten at once.
	Expiry Figures `json:"expiry"`
	// Peak is the highest of all these, and PeakAt when it comes.
	Peak   Figures `json:"peak"`
	PeakAt string  `json:"peakAt"`
	// Seconds are what the simulation had in each second after the restart.
	Seconds []Second `json:"secondsAfterRestart,omitempty"`
}

// Figures are checks inside the API servers, and the reviews of them that reach the webhook, per second.
type Figures struct {
	Checks  Figure `json:"checks"`
	Reviews Figure `json:"webhookReviews"`
}

// Figure is one figure by both ways.
type Figure struct {
	ClosedForm float64  `json:"closedForm"`
	Simulation *float64 `json:"simulation,omitempty"`
}

// Value returns the simulated figure, or that of the closed form where nothing was simulated.
func (f Figure) Value() float64 {
	if f.Simulation != nil {
		return *f.Simulation
	}
	return f.ClosedForm
}

// KindFigures are those of one kind of check.
type KindFigures struct {
	Kind CheckKind `json:"kind"`
	Figures
}

// LevelFigures are those of one priority level: requests that are dispatched in it, with the check of the request itself.
// The checks of impersonation come before priority and fairness: they are those of no level.
type LevelFigures struct {
	// Level is empty for what comes before priority and fairness.
	Level    string  `json:"level"`
	Requests float64 `json:"requestsPerSecond"`
	Figures
}

// newFigures puts both ways together. simulated is nil where nothing was simulated.
func newFigures(closed amount, simulated *amount) Figures {
	f := Figures{Figure{ClosedForm: closed.checks}, Figure{ClosedForm: closed.reviews}}
	if simulated != nil {
		f.Checks.Simulation, f.Reviews.Simulation = &simulated.checks, &simulated.reviews
	}
	return f
}

// most returns the higher of each figure.
func (f Figures) most(g Figures) Figures {
	if g.Checks.Value() > f.Checks.Value() {
		f.Checks = g.Checks
	}
	if g.Reviews.Value() > f.Reviews.Value() {
		f.Reviews = g.Reviews
	}
	return f
}
