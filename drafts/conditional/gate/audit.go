package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// auditPolicy leaves out the requests of the harness itself.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, userGroups: ["system:masters"]}
- {level: Metadata}
`

// conditionalAnnotation is the annotation of an audit event whose request was let through on conditions
// (kubernetes/kubernetes#141959; the KEP wants one and does not name it).
const conditionalAnnotation = "authorization.k8s.io/is-conditional-decision"

// auditLog reads the annotations of requests from an API server's audit log while it is written.
type auditLog struct {
	path        string
	read        int64 // bytes
	annotations map[string]map[string]string
}

// newAuditLog makes a folder for a log. The method remove deletes it.
func newAuditLog() (*auditLog, error) {
	folder, err := os.MkdirTemp("", "authzconf-gate-")
	return &auditLog{path: filepath.Join(folder, "audit.jsonl"), annotations: map[string]map[string]string{}}, err
}

func (a *auditLog) remove() error { return os.RemoveAll(filepath.Dir(a.path)) }

// take returns the annotations of a request, and waits until they are written.
func (a *auditLog) take(ctx context.Context, id string) (map[string]string, error) {
	var annotations map[string]string
	err := wait.PollUntilContextTimeout(ctx, 2*time.Millisecond, 10*time.Second, true, func(context.Context) (is bool, err error) {
		err = a.readOn()
		annotations, is = a.annotations[id]
		return is, err
	})
	delete(a.annotations, id)
	if err != nil {
		err = fmt.Errorf("looking for the request %s in the audit log: %w", id, err)
	}
	return annotations, err
}

// readOn reads the events that were written since.
func (a *auditLog) readOn() error {
	file, err := os.Open(a.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	raw, err := io.ReadAll(io.NewSectionReader(file, a.read, 1<<40))
	if err != nil {
		return err
	}
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1]
	a.read += int64(len(whole))
	for line := range bytes.Lines(whole) {
		var event struct {
			AuditID, Stage string
			Annotations    map[string]string
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("the audit log has a line that is not an event: %w", err)
		}
		if event.Stage == "ResponseComplete" {
			a.annotations[event.AuditID] = event.Annotations
		}
	}
	return nil
}
