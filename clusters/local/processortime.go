package local

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"time"
)

// StartsVariable names a file to which every control plane that is started adds a line with the number of seconds until
// it was ready. It shows how much of the time of tests is spent on that.
const StartsVariable = "AUTHZCONF_STARTS"

// noteStart adds a line to the file that the environment names, if it names one.
func noteStart(ready time.Duration) error {
	path := os.Getenv(StartsVariable)
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%s: %w", StartsVariable, err)
	}
	_, err = fmt.Fprintf(file, "%.3f\n", ready.Seconds())
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("%s: %w", StartsVariable, err)
	}
	return nil
}

// ProcessorTime returns how much processor time the ended processes of the control plane have used, by the name of the
// program (etcd, kube-apiserver). After Stop these are all of them. Processes of a control plane that was joined are
// not counted here.
func (c *ControlPlane) ProcessorTime() map[string]time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.processorTime)
}

// countTime adds the processor time of a process that has ended.
func (c *ControlPlane) countTime(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.processorTime == nil {
		c.processorTime = map[string]time.Duration{}
	}
	state := p.cmd.ProcessState
	c.processorTime[p.name] += state.UserTime() + state.SystemTime()
}
