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
	// startLimit is how long a process may take to become ready.
	startLimit = 3 * time.Minute
	// killLimit is how long a killed process may take to disappear.
	killLimit = time.Minute
	// logKept is how many bytes of a log are retained. logShown is how many are printed when the process itself
	// fails.
	logKept  = 1 << 20
	logShown = 8 << 10
	// endLines lines of endWidth bytes are printed for every process of a failed test. The retained log goes to
	// a file.
	endLines = 5
	endWidth = 240
)

// Process is a process of the system under test. One goroutine may use it at a time.
type Process struct {
	Name    string
	Address string
	metrics string // the address of its measurements; empty unless it is an executor

	t     testing.TB
	path  string
	args  []string
	env   []string
	ready func(context.Context) error
	log   tail
	life  *life // nil before the first start
}

// life is one execution of the process, from exec to exit.
type life struct {
	cmd     *exec.Cmd
	ended   chan struct{} // closed after the exit; err is set before
	err     error
	ordered bool // the test requested the exit
}

// Start starts the stopped process and waits until it is ready.
func (p *Process) Start() {
	p.t.Helper()
	p.StartOnly()
	p.WaitReady()
}

// StartOnly starts the process without waiting.
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
	go func() { // ends with the process; end waits for it
		l.err = cmd.Wait()
		close(l.ended)
	}()
}

// WaitReady waits until the process is ready.
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

// Running reports whether the process was started and has not exited.
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

// Kill kills the process (SIGKILL) and waits for its exit.
func (p *Process) Kill() {
	p.t.Helper()
	p.end(syscall.SIGKILL, killLimit)
}

// Freeze pauses the process (SIGSTOP), like a machine that hangs: its connections stay open without answers.
// Thaw resumes it.
func (p *Process) Freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
}

// Thaw resumes a frozen process.
func (p *Process) Thaw() {
	p.t.Helper()
	p.signal(syscall.SIGCONT)
}

// Stop terminates the process (SIGTERM) and returns how long the exit took. It fails the test if the process
// exceeds the limit or exits with a status other than 0.
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

// Restart kills the process if it runs and starts it with the same address, arguments and environment.
func (p *Process) Restart() {
	p.t.Helper()
	if p.Running() {
		p.Kill()
	}
	p.Start()
}

// Setenv sets variables, NAME=value, for the next start.
func (p *Process) Setenv(env ...string) { p.env = append(p.env, env...) }

// Terminate sends SIGTERM unless the process has exited, and does not wait. See Ended.
func (p *Process) Terminate() {
	p.t.Helper()
	p.life.ordered = true
	if err := p.life.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("send SIGTERM to %s: %v", p.Name, err)
	}
}

// AllowExit permits the running process to exit on its own.
func (p *Process) AllowExit() { p.life.ordered = true }

// Ended is closed after the exit of a started process.
func (p *Process) Ended() <-chan struct{} { return p.life.ended }

// Log returns the retained end of the log.
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

// MustNotStart starts a binary that must exit with a status other than 0, and returns its output.
func MustNotStart(t testing.TB, binary string, env ...string) string {
	t.Helper()
	path := Binary(t, binary) // may take longer than the limit
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

// cleanup kills the process at the end of the test.
func (p *Process) cleanup() {
	if p.Running() {
		p.life.ordered = true
		_ = p.life.cmd.Process.Kill() // fails only after the exit
		<-p.life.ended
	}
	if p.life != nil && !p.life.ordered {
		p.t.Errorf("%s ended though nobody had asked for it: %v", p.Name, p.life.err)
	}
	if p.t.Failed() {
		p.t.Logf("the log of %s, whole in %s, ends with\n%s", p.Name, p.saveLog(), ending(p.log.last(logShown)))
	}
}

// saveLog writes the retained log to a file. The file outlives the test.
func (p *Process) saveLog() (path string) {
	file, err := os.CreateTemp("", "holdfast-"+p.Name+"-*.log")
	if err != nil {
		return err.Error()
	}
	defer func() { _ = file.Close() }() // a lost log line does not matter
	if _, err := file.WriteString(p.Log()); err != nil {
		return err.Error()
	}
	return file.Name()
}

// ending returns the last lines of a text, shortened.
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

// tail retains at least the last logKept bytes of its input. Safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (l *tail) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	if len(l.text) > 2*logKept { // rarely: it moves what stays
		l.text = append(l.text[:0], l.text[len(l.text)-logKept:]...)
	}
	return len(b), nil
}

// last returns whole lines of at most n bytes.
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
