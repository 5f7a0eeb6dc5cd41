// Package process starts and ends the measured programs.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	// stopGrace is how long a process may take after SIGTERM before it is killed.
	stopGrace = 10 * time.Second
	// readyPause is the time between two readiness probes.
	readyPause = 20 * time.Millisecond
	// logKept is the number of log bytes retained for error messages.
	logKept = 4 << 10
)

// Spec describes a process. Its environment holds only the given variables, PATH, HOME and TMPDIR.
type Spec struct {
	Name, Path string
	Args, Env  []string
	Dir        string
	// Output receives the standard output; nil sends it to the log.
	Output io.Writer
	// Account runs the process under another account; nil: our own.
	Account *syscall.Credential
}

// Process is a started process. Stop ends it.
type Process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	log   *tail
	ended chan struct{} // closed after the exit; err is set before
	err   error
}

// Start starts a process. The kernel kills it when this process dies.
func Start(s Spec) (*Process, error) {
	p := &Process{name: s.Name, log: &tail{}, ended: make(chan struct{})}
	p.cmd = exec.Command(s.Path, s.Args...) // ends by Stop
	p.cmd.Dir = s.Dir
	p.cmd.WaitDelay = stopGrace // Output may have no reader at the end of the process
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}, s.Env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if s.Output != nil {
		p.cmd.Stdout = s.Output
	}
	// A keyboard interrupt reaches only this process, which then ends the others.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Credential: s.Account}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	go func() { // ends with the process; Stop waits for it
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Input returns the standard input of the process.
func (p *Process) Input() io.Writer { return p.stdin }

// Ended is closed after the exit.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Failure wraps an error with the end of the process's log.
func (p *Process) Failure(err error) error {
	return fmt.Errorf("%s: %w; its log ends with\n%s", p.name, err, p.log)
}

// WaitReady polls until ready returns nil. It fails when the process or ctx ends.
func (p *Process) WaitReady(ctx context.Context, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return p.Failure(errors.Join(errors.New("it ended before it was ready"), p.err))
		case <-ctx.Done():
			return p.Failure(fmt.Errorf("it is not ready: %w", err))
		case <-time.After(readyPause):
		}
	}
}

// Stop ends the process with the signal, and kills it after stopGrace. Stopping a nil process does nothing.
func (p *Process) Stop(signal syscall.Signal) {
	if p == nil {
		return
	}
	_ = p.stdin.Close()              // workers end with their input
	_ = p.cmd.Process.Signal(signal) // fails only after the exit
	select {
	case <-p.ended:
	case <-time.After(stopGrace):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// FreeAddress returns a free loopback address.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Listens returns a probe for a listener on the address.
func Listens(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// tail retains the end of its input. Safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if excess := len(t.text) - logKept; excess > 0 {
		t.text = append(t.text[:0], t.text[excess:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
