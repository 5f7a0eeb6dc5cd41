package socket

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

func TestAClosedSocketStartsNoPing(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Accept(w, r, 1<<10, time.Second)
		if err != nil {
			ended <- err
			return
		}
		c.Close(nil, "")
		c.Ping(func() { t.Error("a ping was started") })
		ended <- c.WriteBehindPing([]byte("x"), func() {})
		c.pings.Wait()
	}))
	defer server.Close()
	conn, _, err := websocket.Dial(t.Context(), strings.Replace(server.URL, "http", "ws", 1), nil) //nolint:bodyclose // the body is the socket
	if err != nil {
		t.Fatal(err)
	}
	_, _, _ = conn.Read(t.Context()) // the close
	if err := <-ended; err == nil {
		t.Error("a closed socket was written to")
	}
}
