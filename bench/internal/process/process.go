// Package process starts the programs that a benchmark measures, and ends them.
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
	// readyPause is the time between two looks whether a process is ready.
	readyPause = 20 * time.Millisecond
	// logKept is how many bytes of the end of a log are kept for messages of errors.
	logKept = 4 << 10
)

// Spec says what to start. Only the named variables, PATH, HOME and TMPDIR are in its
// environment.
type Spec struct {
	Name, Path string
	Args, Env  []string
	Dir        string
	// Output gets what the process writes to standard output; nil: the log.
	Output io.Writer
	// Account runs the process as somebody else; nil: as ourselves.
	Account *syscall.Credential
}

// Process is a process that was started. Stop ends it.
type Process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	log   *tail
	ended chan struct{} // closed when the process is gone; err is set before
	err   error
}

// Start starts a process. It is killed when this one dies.
func Start(s Spec) (*Process, error) {
	p := &Process{name: s.Name, log: &tail{}, ended: make(chan struct{})}
	p.cmd = exec.Command(s.Path, s.Args...) // ends by Stop
	p.cmd.Dir = s.Dir
	p.cmd.WaitDelay = stopGrace // nobody may read Output any more when the process ends
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}, s.Env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if s.Output != nil {
		p.cmd.Stdout = s.Output
	}
	// An interrupt from the keyboard is for this process, which then ends the others.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Credential: s.Account}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	go func() { // ends with the process, which Stop waits for
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Input is the standard input of the process.
func (p *Process) Input() io.Writer { return p.stdin }

// Ended is closed when the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Failure says that something went wrong with the process, with the end of its log.
func (p *Process) Failure(err error) error {
	return fmt.Errorf("%s: %w; its log ends with\n%s", p.name, err, p.log)
}

// WaitReady asks again and again until ready gives no error. It fails when the process or
// ctx ends.
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

// Stop ends the process with the signal, and kills it where that takes too long. A nil
// process is stopped already.
func (p *Process) Stop(signal syscall.Signal) {
	if p == nil {
		return
	}
	_ = p.stdin.Close()              // workers end with their input
	_ = p.cmd.Process.Signal(signal) // fails only when it is gone
	select {
	case <-p.ended:
	case <-time.After(stopGrace):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// FreeAddress is a loopback address on which nobody listens now.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Listens reports with nil that somebody listens on the address.
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

// tail keeps the end of what is written to it. Safe for concurrent use.
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
