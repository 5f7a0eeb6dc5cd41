package endpoint_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"sync"
	"testing"
)

// point is a place within a call at which the network breaks.
type point struct {
	name string
	// sent is how much of the request the app gets.
	sent portion
	// lines is after how many lines of the answer the connection breaks; within adds a part of the next line. Below 0 the
	// answer never begins.
	lines  int
	within bool
	// known reports whether the executor has the result.
	known bool
}

type portion int

const (
	nothing portion = iota
	half
	all
)

// cutLines is how many lines the answer has before its result, in the test of the points.
const cutLines = 4

// points returns all places at which a call can be cut.
func points() []point {
	list := []point{
		{name: "before the request", sent: nothing, lines: -1},
		{name: "within the request", sent: half, lines: -1},
		{name: "before the answer", sent: all, lines: -1},
	}
	for n := range cutLines + 1 {
		list = append(list, point{name: fmt.Sprintf("after line %d", n), sent: all, lines: n},
			point{name: fmt.Sprintf("within line %d", n+1), sent: all, lines: n, within: true})
	}
	return append(list, point{name: "after the result", sent: all, lines: cutLines + 1, known: true})
}

// cutter is a proxy between executor and app. It breaks connections: those of chosen calls at a point, or all.
type cutter struct {
	URL string

	target    string // the address of the app
	transport *http.Transport

	mu    sync.Mutex
	plans map[string]point // by a text in the request
	cuts  map[string]int   // executed plans by their text
	conns map[net.Conn]bool
}

// startCutter starts a proxy to the address; it ends with the test.
func startCutter(t *testing.T, target string) *cutter {
	t.Helper()
	c := &cutter{
		target: target, transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		plans: map[string]point{}, cuts: map[string]int{}, conns: map[net.Conn]bool{},
	}
	server := httptest.NewUnstartedServer(c)
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if state == http.StateClosed || state == http.StateHijacked {
			delete(c.conns, conn)
		} else {
			c.conns[conn] = true
		}
	}
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		c.transport.CloseIdleConnections()
	})
	c.URL = server.URL
	return c
}

// Plan cuts the next request with the text at the point.
func (c *cutter) Plan(text string, at point) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plans[text] = at
}

// Cuts returns how often requests with the text were cut by a plan.
func (c *cutter) Cuts(text string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts[text]
}

// CutAll breaks all connections.
func (c *cutter) CutAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		reset(conn)
	}
}

// take returns the plan for a request, or nil.
func (c *cutter) take(body []byte) *point {
	c.mu.Lock()
	defer c.mu.Unlock()
	for text, at := range c.plans {
		if bytes.Contains(body, []byte(text)) {
			delete(c.plans, text)
			c.cuts[text]++
			return &at
		}
	}
	return nil
}

// ServeHTTP forwards a request and its answer, up to the point of its plan.
func (c *cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	at := c.take(body)
	request := r.Clone(r.Context())
	request.URL.Scheme, request.URL.Host, request.RequestURI = "http", c.target, ""
	request.Body = io.NopCloser(bytes.NewReader(body))
	switch {
	case at != nil && at.sent == half:
		c.sendHalf(r.Context(), request)
		fallthrough
	case at != nil && at.sent == nothing:
		breakOff(w)
		return
	}
	answer, err := c.transport.RoundTrip(request)
	if err != nil { // the app is down. Its own port would refuse the connection
		breakOff(w)
		return
	}
	defer func() { _ = answer.Body.Close() }()
	if at != nil && at.lines < 0 {
		breakOff(w)
		return
	}
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.StatusCode)
	flush := http.NewResponseController(w).Flush
	lines := bufio.NewReaderSize(answer.Body, 4<<20)
	for n := 0; flush() == nil; n++ {
		if at != nil && n == at.lines && !at.within {
			break
		}
		line, err := lines.ReadSlice('\n')
		if at != nil && n == at.lines && len(line) > 0 {
			line = line[:len(line)/2]
			err = io.ErrUnexpectedEOF
		}
		if _, wrote := w.Write(line); wrote != nil {
			return
		}
		if err == io.EOF && at == nil {
			return // the end
		}
		if err != nil {
			_ = flush()
			break
		}
	}
	if at != nil && at.known {
		panic(http.ErrAbortHandler) // closes the connection, and what was sent arrives
	}
	breakOff(w)
}

// sendHalf sends the app a part of a request, and breaks the connection.
func (c *cutter) sendHalf(ctx context.Context, request *http.Request) {
	text, err := httputil.DumpRequestOut(request, true)
	if err != nil {
		return
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.target)
	if err != nil {
		return
	}
	_, _ = conn.Write(text[:len(text)-len(text)/4])
	reset(conn)
}

// breakOff resets the connection of a request.
func breakOff(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	reset(conn)
}

// reset closes with RST, so the peer sees an error instead of an end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
