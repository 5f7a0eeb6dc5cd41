//go:build unix

package holdfast

import (
	"os"
	"syscall"
)

// tryLock locks the file until it is closed or the process ends.
func tryLock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
