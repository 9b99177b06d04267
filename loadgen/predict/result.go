package predict

import (
	"github.com/authzconf/authzconf/oracle"
)

// Prediction is what a plan leads to. All rates are per second.
type Prediction struct {
	Plan Plan `json:"plan"`
	// Answers say in words what the figures mean, one for each question.
	Answers []Line `json:"answers"`
	// Situations are the states of gate and permissions, in the order of the move to constrained impersonation.
	Situations []Outcome `json:"situations"`
	// Assumes has the assumptions of the figures, in sentences.
	Assumes []string `json:"assumes"`
	// NotSimulated says why there is no simulation. It is empty if there is one.
	NotSimulated string `json:"notSimulated,omitempty"`
}

// Outcome is what is predicted for one situation.
type Outcome struct {
	Situation
	// Name is the situation in words.
	Name string `json:"name"`
	// Modes are the modes that succeed, by workload. It is empty if the requests are refused.
	Modes map[string]oracle.Mode `json:"modes"`
	// Requests is how many impersonated requests there are.
	Requests float64 `json:"requestsPerSecond"`
	// Steady is the long run: each API server has been running for a long time, and everybody asks in their own time.
	Steady Figures `json:"steady"`
	// Questions is how many different questions the webhook is asked in the long run, by the API server that asks most.
	Questions int `json:"questions"`
	// Kinds are the figures of the long run by what the checks are about, and Levels by where the request is
	// dispatched.
	Kinds  []KindFigures  `json:"byKind"`
	Levels []LevelFigures `json:"byPriorityLevel"`
	// First is the mean of the first ten seconds (of the time for which a success is remembered) of API servers that
	// have all just started.
	First Figures `json:"firstTenSeconds"`
	// Restart is the mean of the time in which everybody who was connected to one API server comes back after its
	// restart.
	Restart Figures `json:"restart"`
	// Rollout is the mean of the time in which one DaemonSet of each workload, or all pods of a deputy, are new.
	Rollout Figures `json:"rollout"`
	// Expiry is the highest second after a restart, when everything that was remembered then is forgotten at about the
	// same time. The closed form assumes that everything is forgotten at once.
	Expiry Figures `json:"expiry"`
	// Peak is the highest of all these, and PeakAt when it comes.
	Peak   Figures `json:"peak"`
	PeakAt string  `json:"peakAt"`
	// Seconds are the figures of the simulation for each second after the restart.
	Seconds []Second `json:"secondsAfterRestart,omitempty"`
}

// Figures are checks inside the API servers, and those reviews of them that reach the webhook, per second.
type Figures struct {
	Checks  Figure `json:"checks"`
	Reviews Figure `json:"webhookReviews"`
}

// Figure is one figure in both ways.
type Figure struct {
	ClosedForm float64  `json:"closedForm"`
	Simulation *float64 `json:"simulation,omitempty"`
}

// Value returns the simulated figure, or that of the closed form if nothing was simulated.
func (f Figure) Value() float64 {
	if f.Simulation != nil {
		return *f.Simulation
	}
	return f.ClosedForm
}

// KindFigures are the figures of one kind of check.
type KindFigures struct {
	Kind CheckKind `json:"kind"`
	Figures
}

// LevelFigures are the figures of one priority level: of the requests that are dispatched in it, with the check of the
// request itself. The checks of impersonation come before priority and fairness, and belong to no level.
type LevelFigures struct {
	// Level is empty for what comes before priority and fairness.
	Level    string  `json:"level"`
	Requests float64 `json:"requestsPerSecond"`
	Figures
}

// newFigures puts both ways together. simulated is nil if nothing was simulated.
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
