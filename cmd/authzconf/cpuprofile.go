package main

import (
	"fmt"
	"os"
	"runtime/pprof"

	"github.com/authzconf/authzconf/internal/usage"
)

// cpuProfileVariable names the file into which a command writes a CPU profile of itself (go tool pprof).
const cpuProfileVariable = "AUTHZCONF_CPU_PROFILE"

// startCPUProfile starts the profile that the environment asks for. stop writes it.
func startCPUProfile() (stop func(), err error) {
	path := os.Getenv(cpuProfileVariable)
	if path == "" {
		return func() {}, nil
	}
	file, err := os.Create(path)
	if err == nil {
		err = pprof.StartCPUProfile(file)
	}
	if err != nil {
		return nil, &usage.Error{
			Problem: fmt.Sprintf("no CPU profile can be written: %v", err),
			Hint:    cpuProfileVariable + " is the name of a file in a folder that is there",
		}
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}, nil
}
