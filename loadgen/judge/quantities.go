package judge

// quantity is one of the figures by which the sides of a comparison are compared.
type quantity struct {
	limit   LimitName // the name of the limit that is a margin of it
	margin  float64   // 0 for none
	measure Measurement
	effect  *Effect
}

// quantities returns the figures of a comparison, with their margins.
func (c *Comparison) quantities(m Margins) []quantity {
	return []quantity{
		{P50Margin, m.P50, MeasureQuantile(0.5), &c.P50},
		{P99Margin, m.P99, MeasureQuantile(0.99), &c.P99},
		{CPUMargin, m.CPU, MeasureCPU, &c.CPU},
	}
}

// parts returns the margins by the name that a profile has for them.
func (m Margins) parts() map[string]float64 {
	return map[string]float64{"p50": m.P50, "p99": m.P99, "cpu": m.CPU}
}
