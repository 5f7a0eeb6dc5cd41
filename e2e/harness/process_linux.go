package harness

import "syscall"

// dieWithParent makes the kernel kill the child when the test process dies
// without running its cleanups: a timeout of go test, kill -9.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
