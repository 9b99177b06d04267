package campaign

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
)

// sharedFile is the file through which a running program is told which mutant to be, and notes the mutants it
// comes by.
type sharedFile struct {
	file *os.File
	path string // by which the program opens it
	size int    // of the notes
}

// newSharedFile makes the file for mutants 1 to n, with mutant chosen.
func newSharedFile(n, chosen int) (_ *sharedFile, err error) {
	f, err := os.CreateTemp("", "authzconf-mutants-")
	if err != nil {
		return nil, err
	}
	s := &sharedFile{file: f, path: f.Name(), size: n + 1}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	// Where programs can open each other's files, it needs no name: so nothing is left of it, even if this program
	// is killed.
	if open := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()); isFile(open) {
		s.path = open
		if err := os.Remove(f.Name()); err != nil {
			return nil, err
		}
	}
	if err := f.Truncate(int64(mutate.SharedHeader + s.size)); err != nil {
		return nil, err
	}
	return s, s.choose(chosen)
}

// choose makes the running program another mutant; 0 is the unmutated program.
func (s *sharedFile) choose(mutant int) error {
	header := binary.LittleEndian.AppendUint32(nil, uint32(mutant))
	if _, err := s.file.WriteAt(header, 0); err != nil {
		return fmt.Errorf("choosing a mutant: %w", err)
	}
	return nil
}

// take returns the mutants reached since the last call.
func (s *sharedFile) take() ([]int, error) {
	data := make([]byte, s.size)
	if _, err := s.file.ReadAt(data, mutate.SharedHeader); err != nil {
		return nil, fmt.Errorf("reading which mutants were reached: %w", err)
	}
	if _, err := s.file.WriteAt(make([]byte, s.size), mutate.SharedHeader); err != nil {
		return nil, fmt.Errorf("clearing which mutants were reached: %w", err)
	}
	var reached []int
	for n, b := range data {
		if b != 0 {
			reached = append(reached, n)
		}
	}
	return reached, nil
}

func (s *sharedFile) close() {
	_ = s.file.Close()
	if s.path == s.file.Name() {
		_ = os.Remove(s.path)
	}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
