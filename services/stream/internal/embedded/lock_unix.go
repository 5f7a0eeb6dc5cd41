//go:build unix

package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// lock locks the directory until release is called or the process ends.
func lock(directory string) (release func(), err error) {
	name := filepath.Join(directory, "holdfast.lock")
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.New(fault.Invalid, "CONFIG_INVALID", "the data directory of the stream cannot be written: %v", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil { //nolint:gosec // a descriptor is small
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fault.New(fault.Invalid, "CONFIG_INVALID", "another process uses the data directory of the stream, %s", directory)
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return func() { _ = file.Close() }, nil
}
