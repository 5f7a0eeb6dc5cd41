package harness

import "syscall"

// dieWithParent makes the kernel kill the child when the test process dies without cleanup: a timeout of go
// test, kill -9.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
