package session

import "context"

// findKubectl finds kubectl, building it if need be, where a scenario that will
// run needs it, and only there.
func (c *Cell) findKubectl(ctx context.Context) (err error) {
	for _, j := range c.jobs {
		if j.scenario.RunsKubectl() {
			c.Plan.Target.Kubectl, err = c.Plan.Target.Binaries.Kubectl(ctx)
			return err
		}
	}
	return nil
}
