package history

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// maxDays is the longest period that can be requested: a hundred years.
const maxDays = 36_525

// ParsePeriod reads a length of time: one of Go, such as 36h, or a number of days, such as 14d.
func ParsePeriod(text string) (time.Duration, error) {
	wrong := fmt.Errorf("%q is not a length of time; write it like 14d or 36h", text)
	if number, isDays := strings.CutSuffix(text, "d"); isDays {
		days, err := strconv.ParseUint(number, 10, 32)
		if err != nil || days == 0 || days > maxDays {
			return 0, wrong
		}
		return time.Duration(days) * day, nil
	}
	period, err := time.ParseDuration(text)
	if err != nil || period <= 0 || period > maxDays*day {
		return 0, wrong
	}
	return period, nil
}

// FormatPeriod returns a length of time as ParsePeriod reads it, in days where it is whole days.
func FormatPeriod(d time.Duration) string {
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
