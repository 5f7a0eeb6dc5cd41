package mcptool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/mcptool"
)

// callWithin calls a tool with a time limit.
func callWithin(t *testing.T, s *mcptool.Server, name, input string, limit time.Duration) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return call(ctx, t, s, name, input)
}

// awaitRestart waits for another process.
func awaitRestart(t *testing.T, s *mcptool.Server, before string) {
	t.Helper()
	eventually(t, "the server is started again", func() bool {
		after := callWithin(t, s, "pid", `{}`, 10*time.Second)
		return !strings.HasPrefix(after, "error: ") && after != before
	})
	eventually(t, "the former process has ended", func() bool { return !exists(t, before) })
}

// openImpatient opens a server with short time limits. On a busy machine it may start too slowly and is started
// again.
func openImpatient(t *testing.T, c mcptool.Config, p mcptool.Peers) *mcptool.Server {
	t.Helper()
	c.ConnectTimeout = 3 * time.Second
	var s *mcptool.Server
	eventually(t, "the server has started in its time", func() bool {
		var err error
		if s, err = mcptool.Open(t.Context(), c, p); err != nil {
			t.Fatalf("Open: %v", err)
		}
		if s.Tools() == nil {
			_ = s.Close()
			return false
		}
		return true
	})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// freeze stops a process and, where the system reports it, waits until it has stopped.
func freeze(t *testing.T, pid string) {
	t.Helper()
	pid = strings.Trim(pid, `"`)
	number, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(number, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process stands still", func() bool {
		status, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			return true // the file exists on Linux only
		}
		_, state, _ := strings.Cut(string(status), ") ") // after the name
		return strings.HasPrefix(state, "T")
	})
}

func TestAChildThatReadsNoMoreIsKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	s := openImpatient(t, c, p)
	pid := call(t.Context(), t, s, "pid", `{}`)
	freeze(t, pid)

	large := `{"x":"` + strings.Repeat("x", 1<<20) + `"}` // more than a pipe holds
	var calls sync.WaitGroup
	var unread atomic.Int32
	for range 5 {
		calls.Go(func() {
			got, err := tool(t, s, "echo_key").Execute(t.Context(), &agent.Call{Input: json.RawMessage(large)})
			switch {
			case err == nil: // no byte of it reached the child, and the next child answered
			case fault.ReasonOf(err) == "MCP_UNAVAILABLE" && strings.Contains(err.Error(), "has not read a message within 3s"):
				unread.Add(1)
			case fault.ReasonOf(err) != "MCP_UNAVAILABLE": // the next child may start too slowly
				t.Errorf("echo_key = %v, %v, want that it does not read", got, err)
			}
		})
	}
	calls.Wait()
	if n := unread.Load(); n == 0 {
		t.Error("no call has failed, want that of which the child had begun to read")
	}
	awaitRestart(t, s, pid)
}

func TestAChildThatAnswersNoMoreIsKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	var log bytes.Buffer
	p.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := openImpatient(t, c, p)
	pid := call(t.Context(), t, s, "pid", `{}`)
	freeze(t, pid)
	for range 3 {
		callWithin(t, s, "add", `{"a":1,"b":1}`, 100*time.Millisecond)
	}
	awaitRestart(t, s, pid)
	_ = s.Close()
	if !strings.Contains(log.String(), "it answered neither") {
		t.Errorf("log = %s, want why the session was ended", log.String())
	}
}

func TestAServerWithASlowToolIsNotTakenForDead(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	s := open(t, c, p)
	pid := call(t.Context(), t, s, "pid", `{}`)
	for range 10 {
		callWithin(t, s, "hang", `{}`, 20*time.Millisecond)
	}
	if got := call(t.Context(), t, s, "pid", `{}`); got != pid {
		t.Errorf("pid = %s, want still %s", got, pid)
	}
}

func TestTheCallsInFlightOfAServerAreBounded(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	s := open(t, c, p)
	ctx, cancel := context.WithCancel(t.Context())
	hang := tool(t, s, "hang")
	var calls sync.WaitGroup
	occupy := func() {
		for ctx.Err() == nil { // on a busy machine the server may be taken for dead, which ends its calls
			_, _ = hang.Execute(ctx, &agent.Call{})
			pause, end := context.WithTimeout(ctx, 5*time.Millisecond)
			<-pause.Done()
			end()
		}
	}
	for range 512 {
		calls.Go(occupy)
	}
	eventually(t, "one more is refused", func() bool {
		return strings.Contains(call(t.Context(), t, s, "pid", `{}`), "it already has 512 calls in flight; this call was not made")
	})
	cancel()
	calls.Wait()
	eventually(t, "calls are made again", func() bool {
		return !strings.HasPrefix(call(t.Context(), t, s, "pid", `{}`), "error: ")
	})
}

func TestAToolThatCannotBeUsedTakesNoOthersWithItLater(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "redeployed")
	c.Env["STARTED_FILE"] = filepath.Join(t.TempDir(), "started")
	var ahead atomic.Int64 // offset of the clock
	p.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	var log bytes.Buffer
	p.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := open(t, c, p)
	call(t.Context(), t, s, "die", `{}`)
	ahead.Store(int64(time.Minute)) // the pause has ended
	eventually(t, "the others are called", func() bool { return call(t.Context(), t, s, "add", `{"a":1,"b":1}`) == `{"sum":2}` })
	changed := s.Changed()
	call(t.Context(), t, s, "grow", `{}`) // triggers a listing
	select {
	case <-changed:
	case <-time.After(patience):
		t.Fatal("Changed was not signalled")
	}
	_ = s.Close()
	if n := strings.Count(log.String(), "MCP tool cannot be used"); n != 1 {
		t.Errorf("the tool was logged %d times, want once:\n%s", n, log.String())
	}
}

func TestAServerCannotTakeTheNamesOfTheRuntimeLater(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	c.Env["USURPED_FILE"] = filepath.Join(t.TempDir(), "started")
	var ahead atomic.Int64 // offset of the clock
	p.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	s := open(t, c, p)
	call(t.Context(), t, s, "die", `{}`)
	ahead.Store(int64(time.Minute)) // the pause has ended
	eventually(t, "the others are called", func() bool { return call(t.Context(), t, s, "add", `{"a":1,"b":1}`) == `{"sum":2}` })
	for _, one := range s.Tools() {
		if one.Name == agent.FinishTool || strings.HasPrefix(one.Name, agent.SubAgentPrefix) {
			t.Errorf("agents have the tool %s of the server", one.Name)
		}
	}
}

func TestToolsThatChangeWithoutEndAreListedOnceASecond(t *testing.T) {
	t.Parallel()
	var lists atomic.Int64
	server := newServer()
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			result, err := next(ctx, method, r)
			if method == "tools/list" {
				lists.Add(1)
				server.AddTool(&mcp.Tool{Name: "restless", InputSchema: map[string]any{"type": "object"}}, mixed)
			}
			return result, err
		}
	})
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(web.Close)
	_, p := stdio(t, "")
	p.Allowed.Hosts = outbound.Policy{Hosts: []string{"127.0.0.1"}}
	s := open(t, mcptool.Config{Name: "web", URL: web.URL}, p)
	begin, before := time.Now(), lists.Load()
	eventually(t, "the tools are listed again", func() bool { return lists.Load() >= before+3 })
	if took := time.Since(begin); took < time.Second {
		t.Errorf("the tools were listed three times within %v, want a second between", took)
	}
	_ = s.Close()
}

func TestAnEventWithoutEndEndsTheSession(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise it would not notice a disconnected client
		w.Header().Set("Content-Type", "text/event-stream")
		lines := []byte(strings.Repeat("data: 1,\n", 10_000))
		for r.Context().Err() == nil {
			if _, err := w.Write(lines); err != nil {
				return
			}
		}
	}))
	t.Cleanup(web.Close)
	t.Cleanup(web.CloseClientConnections)
	_, p := stdio(t, "")
	p.Allowed.Hosts = outbound.Policy{Hosts: []string{"127.0.0.1"}}
	if got := problem(t, mcptool.Config{Name: "web", URL: web.URL}, p); !strings.Contains(got, "a message of more than 16777216 bytes") {
		t.Errorf("problem = %s, want that its message is too large", got)
	}
}
