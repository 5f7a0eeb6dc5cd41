//go:build !linux

package harness

import "syscall"

// dieWithParent works on Linux only. Elsewhere a test process that dies without cleanup leaves its children
// running.
func dieWithParent() *syscall.SysProcAttr { return nil }
