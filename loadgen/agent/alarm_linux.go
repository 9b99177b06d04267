package agent

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// alarm wakes one goroutine at given moments. It is a timer of the kernel, because those of Go wait in whole
// milliseconds when a process is otherwise idle (runtime.netpoll passes its delay to epoll_pwait), and so are half a
// millisecond late on average.
type alarm struct {
	file *os.File
	conn syscall.RawConn
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "timerfd")
	conn, err := file.SyscallConn()
	return &alarm{file, conn}, err
}

// wait returns true when the moment has come, false once the alarm is stopped.
func (a *alarm) wait(moment time.Time) bool {
	var set error
	// The expirations are not read, because setting the timer again discards them.
	err := a.conn.Read(func(fd uintptr) bool {
		left := time.Until(moment)
		if left <= 0 {
			return true
		}
		set = unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(left))}, nil)
		return set != nil
	})
	return err == nil && set == nil
}

// stop ends present and future waits. Any goroutine may call it.
func (a *alarm) stop() { _ = a.file.SetReadDeadline(time.Unix(1, 0)) }

// close may only be called by the goroutine that waits.
func (a *alarm) close() { _ = a.file.Close() }
