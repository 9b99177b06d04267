package nodes

import "time"

// Attempt is one attempt of the node agent, a line of JSON on its standard output.
type Attempt struct {
	Time time.Time `json:"time"`
	// Node is where the agent runs, As the user that it wants to be.
	Node string `json:"node"`
	As   string `json:"as"`
	// Verb, Resource and Target are the request: pods of the node Target, or the node itself.
	Verb     string `json:"verb"`
	Resource string `json:"resource"`
	Target   string `json:"target"`
	// Code is the HTTP status, 0 if there was no answer.
	Code int `json:"code"`
	// Message is the text of a refusal or error.
	Message string `json:"message,omitempty"`
}
