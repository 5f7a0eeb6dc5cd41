package harness

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// startLimit is how long a process may take until it is ready.
	startLimit = 3 * time.Minute
	// killLimit is how long a killed process may take to be gone.
	killLimit = time.Minute
	// logKept is how many bytes of a log are kept, logShown how many are printed
	// beside a failure of the process itself.
	logKept  = 1 << 20
	logShown = 8 << 10
	// endLines of endWidth bytes each are printed of every process of a test that
	// has failed. All that is kept is in a file then: many logs would bury what
	// the test itself says.
	endLines = 5
	endWidth = 240
)

// Process is one process of the system under test. It is used by one
// goroutine at a time.
type Process struct {
	Name    string
	Address string

	t     testing.TB
	path  string
	args  []string
	env   []string
	ready func(context.Context) error
	log   tail
	life  *life // nil before the first start
}

// life is one run of the process, from exec to exit.
type life struct {
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the process is gone; err is set before
	err     error
	ordered bool // the test has asked for the end
}

// Start starts the process, which must not run, and waits until it is ready.
func (p *Process) Start() {
	p.t.Helper()
	p.StartOnly()
	p.WaitReady()
}

// StartOnly starts the process and does not wait for anything.
func (p *Process) StartOnly() {
	p.t.Helper()
	if p.Running() {
		p.t.Fatalf("%s runs already", p.Name)
	}
	cmd := exec.CommandContext(context.Background(), p.path, p.args...) // ends by Kill, Stop or cleanup
	cmd.Env = p.env
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", p.Name, err)
	}
	l := &life{cmd: cmd, ended: make(chan struct{})}
	p.life = l
	go func() { // ends with the process, which end waits for
		l.err = cmd.Wait()
		close(l.ended)
	}()
}

// WaitReady waits until the process says that it is ready.
func (p *Process) WaitReady() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		err := p.ready(ctx)
		if err == nil {
			return
		}
		select {
		case <-p.life.ended:
			p.t.Fatalf("%s ended before it was ready: %v\n%s", p.Name, p.life.err, p.log.last(logShown))
		case <-ctx.Done():
			p.t.Fatalf("%s was not ready within %v: %v\n%s", p.Name, startLimit, err, p.log.last(logShown))
		case <-time.After(pollPause):
		}
	}
}

// Running reports whether the process has been started and has not ended.
func (p *Process) Running() bool {
	if p.life == nil {
		return false
	}
	select {
	case <-p.life.ended:
		return false
	default:
		return true
	}
}

// Kill ends the process as a power cut does (SIGKILL) and waits until it is gone.
func (p *Process) Kill() {
	p.t.Helper()
	p.end(syscall.SIGKILL, killLimit)
}

// Freeze stops the process where it stands (SIGSTOP), as a machine does that
// hangs: its connections stay open, and nobody answers. Thaw lets it go on.
func (p *Process) Freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
}

// Thaw ends Freeze.
func (p *Process) Thaw() {
	p.t.Helper()
	p.signal(syscall.SIGCONT)
}

// Stop asks the process to end (SIGTERM). It fails the test when the process
// takes longer than the limit or does not end with exit status 0, and returns
// how long it took.
func (p *Process) Stop(limit time.Duration) time.Duration {
	p.t.Helper()
	start := time.Now()
	p.end(syscall.SIGTERM, limit)
	took := time.Since(start)
	if p.life.err != nil {
		p.t.Errorf("%s ended after SIGTERM with %v, want exit status 0\n%s", p.Name, p.life.err, p.log.last(logShown))
	}
	return took
}

// Restart kills the process where it runs and starts it again with the same
// address, arguments and environment.
func (p *Process) Restart() {
	p.t.Helper()
	if p.Running() {
		p.Kill()
	}
	p.Start()
}

// Terminate sends SIGTERM, where the process has not ended by itself, and does not wait:
// see Ended.
func (p *Process) Terminate() {
	p.t.Helper()
	p.life.ordered = true
	if err := p.life.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("send SIGTERM to %s: %v", p.Name, err)
	}
}

// Doom says that the process, which runs, may end by itself from now on.
func (p *Process) Doom() { p.life.ordered = true }

// Ended is closed when the process, which was started, is gone.
func (p *Process) Ended() <-chan struct{} { return p.life.ended }

// Log returns what the process has written lately.
func (p *Process) Log() string { return p.log.last(logKept) }

func (p *Process) end(signal syscall.Signal, limit time.Duration) {
	p.t.Helper()
	if p.life != nil {
		p.life.ordered = true
	}
	p.signal(signal)
	select {
	case <-p.life.ended:
	case <-time.After(limit):
		p.t.Fatalf("%s still runs %v after %v\n%s", p.Name, limit, signal, p.log.last(logShown))
	}
}

func (p *Process) signal(signal syscall.Signal) {
	p.t.Helper()
	if !p.Running() {
		p.t.Fatalf("%s does not run\n%s", p.Name, p.log.last(logShown))
	}
	if err := p.life.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("send %v to %s: %v", signal, p.Name, err)
	}
}

// MustNotStart starts a binary that has to end by itself, with an exit status
// other than 0, and returns what it has written.
func MustNotStart(t testing.TB, binary string, env ...string) string {
	t.Helper()
	path := Binary(t, binary) // which may take longer than the limit
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = append(baseEnv(), env...)
	cmd.SysProcAttr = dieWithParent()
	out, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); !exited || ctx.Err() != nil {
		t.Errorf("%s with %q: got %v, want an exit status other than 0\n%s", binary, env, err, out)
	}
	return string(out)
}

// cleanup is the end of the test.
func (p *Process) cleanup() {
	if p.Running() {
		p.life.ordered = true
		_ = p.life.cmd.Process.Kill() // fails only when it is gone
		<-p.life.ended
	}
	if p.life != nil && !p.life.ordered {
		p.t.Errorf("%s ended though nobody had asked for it: %v", p.Name, p.life.err)
	}
	if p.t.Failed() {
		p.t.Logf("the log of %s, whole in %s, ends with\n%s", p.Name, p.saveLog(), ending(p.log.last(logShown)))
	}
}

// saveLog writes what is kept of the log to a file, which stays behind the test.
func (p *Process) saveLog() (path string) {
	file, err := os.CreateTemp("", "holdfast-"+p.Name+"-*.log")
	if err != nil {
		return err.Error()
	}
	defer func() { _ = file.Close() }() // what is missing then is the log of a test that has failed
	if _, err := file.WriteString(p.Log()); err != nil {
		return err.Error()
	}
	return file.Name()
}

// ending is the end of a text, in few lines that are not long.
func ending(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	lines = lines[max(0, len(lines)-endLines):]
	for i, line := range lines {
		if len(line) > endWidth {
			lines[i] = line[:endWidth] + " …"
		}
	}
	return strings.Join(lines, "\n")
}

// tail keeps the end of what is written to it. Safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (l *tail) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	if excess := len(l.text) - logKept; excess > 0 {
		l.text = append(l.text[:0], l.text[excess:]...)
	}
	return len(b), nil
}

// last gives whole lines of at most n bytes.
func (l *tail) last(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := string(l.text)
	if len(text) <= n {
		return text
	}
	_, text, _ = strings.Cut(text[len(text)-n:], "\n")
	return text
}
