//go:build !linux

package harness

import "syscall"

// dieWithParent is a Linux thing; elsewhere a test process that dies without
// its cleanups leaves its children behind.
func dieWithParent() *syscall.SysProcAttr { return nil }
