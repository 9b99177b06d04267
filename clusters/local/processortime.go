package local

import (
	"maps"
	"time"
)

// ProcessorTime returns how much processor time the processes of the control plane have taken that have ended, by the name of
// the program (etcd, kube-apiserver). After Stop these are all of them. Those of a control plane that was joined are not
// counted here.
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
