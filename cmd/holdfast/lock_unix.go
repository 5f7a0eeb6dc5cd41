//go:build unix

package main

import (
	"os"
	"syscall"
)

// tryLock locks the file until it is closed, by whatever end of the process.
func tryLock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
