package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// dictatedWords is the number of words sent one by one through a proxy.
const dictatedWords = 6

// proxyLimit is how long a reader may wait for a word.
const proxyLimit = 3 * time.Minute

// documentation explains the configuration of a proxy.
const documentation = "../docs/clients.md"

// upgradeLines returns its nginx configuration lines for WebSockets.
func upgradeLines(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(documentation)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "proxy_") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 3 {
		t.Fatalf("%s tells the lines %q, want three of them", documentation, lines)
	}
	return lines
}

// behindNginx is a system with a dictated model, and a client behind an nginx with the distribution's
// configuration.
type behindNginx struct {
	*harness.System
	*dictation
	through harness.Client
}

func startBehindNginx(t *testing.T, gateway []string, nginx ...string) *behindNginx {
	t.Helper()
	d := startDictation(t)
	s := harness.Start(t, harness.Options{Agents: d.agents()})
	if len(gateway) > 0 {
		s.ConfigureGateway(gateway...)
	}
	return &behindNginx{s, d, harness.Client{URL: harness.StartNginx(t, s.Gateway.Address, nginx...), Key: harness.Key}}
}

// checkSteps dictates word by word and waits for the reader after each. has waits until the reader has the text
// so far.
func checkSteps(a *dictated, has func(text string)) {
	text := ""
	for i := range dictatedWords {
		word := fmt.Sprintf("word%d ", i)
		a.say(word)
		text += word
		has(text)
	}
}

func TestAnAnswerIsReadWordByWordThroughNginx(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]string{
		"as it is":       nil,
		"with gzip":      {"gzip on;", "gzip_types *;", "gzip_proxied any;"},
		"with HTTP/1.1":  {"proxy_http_version 1.1;", `proxy_set_header Connection "";`},
		"for WebSockets": upgradeLines(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startBehindNginx(t, nil, options...)
			a := s.answer(t, "dictate")
			asking := s.through.Chat(t, "word by word", "secretary", "dictate")
			native := s.through.Native(t, "word by word", 0)
			checkSteps(a, func(text string) {
				asking.UntilText(len(text))
				native.Until(text, func(n *harness.NativeStream) bool { return n.Text() == text })
			})
			a.end()
			native.ReadAll()
			if got, want := native.End, "end"; got != want {
				t.Errorf("the stream ends with %q, want %q", got, want)
			}
			checkContent(t, "who had asked", asking.ReadAll(), textContent(native.Text()))
			late := s.through.Native(t, "word by word", native.Chunks[1].Sequence)
			late.ReadAll()
			if got, want := len(late.Chunks), len(native.Chunks)-2; got != want || late.Text() != native.Text() {
				t.Errorf("who goes on behind the second chunk gets %d chunks, want %d\n%s", got, want, late.Dump())
			}
		})
	}
}

func TestAnAnswerIsReadWordByWordThroughAProxyThatCompresses(t *testing.T) {
	t.Parallel()
	d := startDictation(t)
	s := harness.Start(t, harness.Options{Agents: d.agents()})
	through := harness.Client{URL: harness.StartCompressingProxy(t, "proxies", s.Gateway.Address), Key: harness.Key}
	if !compressed(t, through, "/openapi.json") {
		t.Error("the proxy does not compress a document: this test proves nothing")
	}
	a := d.answer(t, "dictate")
	asking := through.Chat(t, "compressed", "secretary", "dictate")
	native := through.Native(t, "compressed", 0)
	checkSteps(a, func(text string) {
		asking.UntilText(len(text))
		native.Until(text, func(n *harness.NativeStream) bool { return n.Text() == text })
	})
	a.end()
	native.ReadAll()
	checkContent(t, "who had asked", asking.ReadAll(), textContent(native.Text()))
}

// compressed reports whether the answer at the path arrives compressed.
func compressed(t *testing.T, client harness.Client, path string) bool {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, client.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+client.Key)
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	return response.Uncompressed
}

func TestAnswersAreCompressedWhereNginxIsToldTo(t *testing.T) {
	t.Parallel()
	s := startBehindNginx(t, nil, "gzip on;", "gzip_types *;", "gzip_proxied any;")
	a := s.answer(t, "dictate")
	s.Chat(t, "small", "secretary", "dictate").Close()
	if !compressed(t, s.through, "/sse?sessionId=small") {
		t.Error("the body was not compressed: the test with gzip proves nothing")
	}
	a.end()
}

func TestAReaderBehindNginxGoesOnFromItsCursor(t *testing.T) {
	t.Parallel()
	s := startBehindNginx(t, nil)
	a := s.answer(t, "dictate")
	asking := s.through.Chat(t, "cut", "secretary", "dictate")
	native := &harness.NativeStream{}
	text := ""
	checkSteps(a, func(want string) { // one connection per word
		asking.UntilText(len(want))
		asking = s.through.Resume(t, "cut", asking)
		native = s.through.Native(t, "cut", native.Cursor)
		native.Until(want, func(n *harness.NativeStream) bool { return text+n.Text() == want })
		text += native.Text()
		native.Close()
	})
	a.end()
	checkContent(t, "who had asked", asking.ReadAll(), textContent(text))
	rest := s.through.Native(t, "cut", native.Cursor)
	rest.ReadAll()
	if rest.Text() != "" || rest.End != "end" {
		t.Errorf("behind the last word came\n%swant nothing more of the text, and the end", rest.Dump())
	}
}

func TestAWebSocketBehindNginxNeedsTheDocumentedLines(t *testing.T) {
	t.Parallel()
	s := startBehindNginx(t, nil, upgradeLines(t)...)
	ctx, cancel := context.WithTimeout(t.Context(), proxyLimit)
	defer cancel()
	a := s.answer(t, "dictate")
	s.through.Chat(t, "socket", "secretary", "dictate").Close()

	plain := harness.Client{URL: harness.StartNginx(t, s.Gateway.Address), Key: harness.Key}
	_, err := plain.Listen(ctx, "socket", harness.WebSocket, 0)
	if status, body, refused := harness.Refusal(err); !refused || status != http.StatusUpgradeRequired || !strings.Contains(body, `"UPGRADE_REQUIRED"`) {
		t.Errorf("without the lines: got %v, want %d and UPGRADE_REQUIRED", err, http.StatusUpgradeRequired)
	}

	events, err := s.through.Listen(ctx, "socket", harness.WebSocket, 0)
	if err != nil {
		t.Fatalf("with the lines: %v", err)
	}
	defer events.Close()
	socket, text := listening{events}, ""
	checkSteps(a, func(want string) {
		for text != want {
			text += nextDelta(t, socket)
		}
	})
	a.end()
	for f := (frame{}); !f.terminal; {
		if f, err = socket.next(); err != nil {
			t.Fatal(err)
		}
	}
	if f, err := socket.next(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the end came %v (%v), want a clean close", f, err)
	}
}

func TestAQuietStreamOutlivesThePatienceOfNginx(t *testing.T) {
	t.Parallel()
	s := startBehindNginx(t, []string{"HOLDFAST_GATEWAY_HEARTBEAT=1600ms"}, "proxy_read_timeout 8s;")
	a := s.answer(t, "dictate")
	asking := s.through.Chat(t, "quiet", "secretary", "dictate")
	a.say("Well, ")
	asking.UntilText(len("Well, "))
	native := s.through.Native(t, "quiet", 0)
	checkQuiet(t, s.through, "quiet", 7) // each a fifth of the proxy's timeout
	a.say("that was long.")
	a.end()
	checkContent(t, "who had asked", asking.ReadAll(), textContent("Well, that was long."))
	native.ReadAll()
	if got, want := native.Text(), "Well, that was long."; got != want {
		t.Errorf("the stream says %q, want %q", got, want)
	}
}

// checkQuiet waits for a number of heartbeats.
func checkQuiet(t *testing.T, c harness.Client, session string, beats int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), proxyLimit)
	defer cancel()
	body, err := c.Comments(ctx, session, beats)
	if err != nil {
		t.Fatalf("%v after the comments %q, want %d of them", err, body, beats)
	}
}

func TestHeartbeatsPushAnAnswerThroughAnNginxThatHoldsBack(t *testing.T) {
	t.Parallel()
	s := startBehindNginx(t, []string{"HOLDFAST_GATEWAY_HEARTBEAT=200ms"}, "proxy_ignore_headers X-Accel-Buffering;")
	a := s.answer(t, "dictate")
	asking := s.through.Chat(t, "pushed", "secretary", "dictate")
	native := s.through.Native(t, "pushed", 0)
	checkSteps(a, func(text string) {
		asking.UntilText(len(text))
		native.Until(text, func(n *harness.NativeStream) bool { return n.Text() == text })
	})
	a.end()
	native.ReadAll()
	checkContent(t, "who had asked", asking.ReadAll(), textContent(native.Text()))
}

func TestARunGoesOnWhenItsOnlyReaderBehindNginxHasLeft(t *testing.T) {
	t.Parallel()
	s := startBehindNginx(t, nil)
	a := s.answer(t, "dictate")
	asking := s.through.Chat(t, "alone", "secretary", "dictate")
	a.say("Are you ")
	asking.UntilText(len("Are you "))
	asking.Close()
	a.say("still ")
	a.say("there?")
	a.end()
	s.WaitStatus(t, "alone", "completed")
	checkTranscript(t, s.through, "alone", "user:", textContent("dictate"), "assistant:", textContent("Are you still there?"))
}

// nextDelta returns the text of the next frame, or "".
func nextDelta(t *testing.T, c connection) string {
	t.Helper()
	f, err := c.next()
	if err != nil {
		t.Fatal(err)
	}
	_, data, _ := strings.Cut(f.bytes, "{")
	var said struct {
		Chunk harness.NativeChunk `json:"chunk"`
	}
	if err := json.Unmarshal([]byte("{"+data), &said); err != nil {
		t.Fatalf("the frame %v: %v", f, err)
	}
	return said.Chunk.Delta
}
