package agent

import (
	"testing"
	"time"
)

func TestAlarm(t *testing.T) {
	a, err := newAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	if !a.wait(time.Now().Add(-time.Second)) {
		t.Error("a moment that has passed is not waited for")
	}
	for range 20 {
		moment := time.Now().Add(3 * time.Millisecond)
		if !a.wait(moment) {
			t.Fatal("did not wait")
		}
		if early := time.Until(moment); early > 0 {
			t.Errorf("%s too early", early)
		}
	}
	begin := time.Now()
	time.AfterFunc(20*time.Millisecond, a.stop)
	if a.wait(begin.Add(time.Minute)) {
		t.Error("a stopped alarm says that the moment has come")
	}
	if took := time.Since(begin); took > 30*time.Second { // half of the wait
		t.Errorf("stopped after %s", took)
	}
	if a.wait(begin) {
		t.Error("goes on after it was stopped")
	}
}

// BenchmarkAlarm reports how late a goroutine wakes for a moment 1.3 ms ahead.
func BenchmarkAlarm(b *testing.B) {
	a, err := newAlarm()
	if err != nil {
		b.Fatal(err)
	}
	defer a.close()
	var late time.Duration
	for b.Loop() {
		moment := time.Now().Add(1300 * time.Microsecond)
		a.wait(moment)
		late += time.Since(moment)
	}
	b.ReportMetric(float64(late.Nanoseconds())/float64(b.N), "late-ns/op")
}
