package react_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

const (
	// commandLimit bounds one browser command. The waits inside a command are shorter.
	commandLimit = 150 * time.Second
	// closeLimit is how long a browser may take to exit.
	closeLimit = time.Minute
)

// browser is a Chromium under the control of browser.mjs. Safe for concurrent use.
type browser struct {
	in io.WriteCloser

	mu      sync.Mutex
	last    int
	waiting map[int]chan answer
	ended   error // set when the browser accepts no more commands
}

type command struct {
	ID      int    `json:"id"`
	Do      string `json:"do"`
	Tab     string `json:"tab"`
	Profile string `json:"profile,omitempty"`
	URL     string `json:"url,omitempty"`
	Label   string `json:"label,omitempty"`
	Text    string `json:"text"`
	Button  string `json:"button,omitempty"`
	Off     bool   `json:"off"`
}

type answer struct {
	ID    int             `json:"id"`
	Value json.RawMessage `json:"value"`
	Error string          `json:"error"`
}

// startBrowser starts a browser. It ends with the test.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	executable, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v (e2e/setup installs it)", err)
	}
	node := exec.CommandContext(t.Context(), "node", "--no-warnings", "browser.mjs", executable)
	node.Cancel = func() error { return node.Process.Signal(os.Interrupt) } // ends the browser as well
	node.WaitDelay = closeLimit
	node.Stderr = os.Stderr // an ended test accepts no output
	b := &browser{waiting: map[int]chan answer{}}
	if b.in, err = node.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatalf("start node: %v", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { b.listen(out) })
	t.Cleanup(func() {
		_ = b.in.Close()
		wg.Wait()
		_ = node.Wait() // ended by the test's context or by the end of its input
	})
	return b
}

// listen delivers answers to their waiting callers until the output ends.
func (b *browser) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	ended := io.ErrUnexpectedEOF
	for lines.Scan() {
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			ended = fmt.Errorf("the browser said %q: %w", lines.Text(), err)
			break
		}
		b.mu.Lock()
		b.waiting[a.ID] <- a // buffered for one answer
		delete(b.waiting, a.ID)
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = ended
	for _, w := range b.waiting {
		close(w)
	}
	b.waiting = nil
}

// do executes a command and stores its result in value, if not nil.
func (b *browser) do(t *testing.T, c command, value any) {
	t.Helper()
	if err := b.ask(c, value); err != nil {
		t.Fatalf("%s in %s: %v", c.Do, c.Tab, err)
	}
}

func (b *browser) ask(c command, value any) error {
	w := make(chan answer, 1)
	if err := b.send(c, w); err != nil {
		return err
	}
	select {
	case a, ok := <-w:
		switch {
		case !ok:
			return b.ended
		case a.Error != "":
			return fmt.Errorf("the browser says: %s", a.Error)
		case value == nil:
			return nil
		}
		return json.Unmarshal(a.Value, value)
	case <-time.After(commandLimit):
		return fmt.Errorf("the browser has not answered within %v", commandLimit)
	}
}

func (b *browser) send(c command, w chan answer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		return b.ended
	}
	b.last++
	c.ID = b.last
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	b.waiting[c.ID] = w
	_, err = b.in.Write(append(line, '\n'))
	return err
}
