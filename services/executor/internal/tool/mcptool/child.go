package mcptool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Time limits for ending a child: after closing its input, after a termination signal, after a kill.
const (
	closeGrace     = 2 * time.Second
	terminateGrace = 2 * time.Second
	killGrace      = 2 * time.Second
)

// maxLogLine limits a line of a child's standard error, in bytes.
const maxLogLine = 2000

// child is a running process. A goroutine waits for it from the start, so it never becomes a zombie.
type child struct {
	cmd    *exec.Cmd
	input  *os.File
	output *os.File
	stderr *logLines
	ended  chan struct{}
	once   sync.Once
}

func startChild(command []string, env []string, dir string, log *slog.Logger) (*child, error) {
	theirInput, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	output, theirOutput, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirInput.Close(), input.Close())
	}
	// The child outlives the call that starts it: see Close.
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // it ends in stop
	cmd.Env, cmd.Dir = env, dir
	stderr := &logLines{log: log}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirInput, theirOutput, stderr
	cmd.WaitDelay = killGrace // processes started by the child may keep standard error open
	ownGroup(cmd)
	err = cmd.Start()
	_ = theirInput.Close() // the child has its own copy
	_ = theirOutput.Close()
	if err != nil {
		return nil, errors.Join(err, input.Close(), output.Close())
	}
	c := &child{cmd: cmd, input: input, output: output, stderr: stderr, ended: make(chan struct{})}
	go func() { // ends with the child; stop ensures it
		defer close(c.ended)
		if err := cmd.Wait(); err != nil {
			log.Info("MCP server has ended", "error", err)
		}
		killGroup(cmd) // processes left by the child
	}()
	return c, nil
}

func (c *child) Read(p []byte) (int, error) { return c.output.Read(p) }

func (c *child) Write(p []byte) (int, error) { return c.input.Write(p) }

// Close ends the child and waits for it.
func (c *child) Close() error {
	c.once.Do(c.stop)
	return nil
}

func (c *child) stop() {
	_ = c.input.Close() // written data stays written
	if !c.endsWithin(closeGrace) {
		terminateGroup(c.cmd)
		if !c.endsWithin(terminateGrace) {
			killGroup(c.cmd)
			c.endsWithin(killGrace)
		}
	}
	_ = c.output.Close()
}

func (c *child) endsWithin(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.ended:
		return true
	case <-timer.C:
		return false
	}
}

// environment returns a child's environment: given, and PATH and HOME of the process. It is never nil, because
// os/exec would then pass on the whole environment.
func environment(given map[string]string, own func(string) (string, bool)) []string {
	env := []string{}
	for _, name := range []string{"PATH", "HOME"} {
		if _, there := given[name]; there || own == nil {
			continue
		}
		if value, ok := own(name); ok {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range given {
		env = append(env, name+"="+value)
	}
	return env
}

// maxTail bounds the end of a child's standard error that errors show, in bytes.
const maxTail = 2 << 10

// logLines writes lines to a log, and keeps the last ones.
type logLines struct {
	log  *slog.Logger
	line []byte

	mu   sync.Mutex
	tail []byte
}

// last returns the last lines, at most maxTail bytes.
func (l *logLines) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(string(l.tail)), "?")
}

func (l *logLines) keep(p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, p[max(0, len(p)-maxTail):]...)
	l.tail = append([]byte(nil), l.tail[max(0, len(l.tail)-maxTail):]...)
}

func (l *logLines) Write(p []byte) (int, error) {
	l.keep(p)
	for _, piece := range bytes.SplitAfter(p, []byte("\n")) {
		text, complete := bytes.CutSuffix(piece, []byte("\n"))
		if room := maxLogLine - len(l.line); room > 0 {
			l.line = append(l.line, text[:min(len(text), room)]...)
		}
		if complete {
			l.log.Log(context.Background(), slog.LevelDebug, "MCP server says", "line", fmt.Sprintf("%q", l.line))
			l.line = l.line[:0]
		}
	}
	return len(p), nil
}
