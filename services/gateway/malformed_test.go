package gateway_test

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// lockedBuffer is a log that a test reads while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestAMalformedStreamIsTheClientsMistake(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	h := openWith(t, listen(t), New(t), gateway.Peers{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))}, nil)
	frame := func(flags byte, length int, body string) string {
		head := binary.BigEndian.AppendUint32([]byte{flags}, uint32(length)) //nolint:gosec // small
		return string(head) + body
	}
	for name, body := range map[string]string{
		"nothing":                   "",
		"half a prefix":             "\x00\x00",
		"half a message":            frame(0, 100, `{"sessionId":"s`),
		"no JSON":                   frame(0, 5, "hello"),
		"another field":             frame(0, 9, `{"nope":1}`[:9]),
		"unknown flags":             frame(0xff, 2, "{}"),
		"compressed without a sign": frame(1, 2, "{}"),
		"two messages":              frame(0, 2, "{}") + frame(0, 2, "{}"),
	} {
		response := h.request(t, http.MethodPost, "/holdfast.agent.v1.AgentService/Stream", body, "Content-Type", "application/connect+json")
		got := text(t, response)
		if strings.Contains(got, `"internal"`) || !strings.Contains(got, `"error"`) {
			t.Errorf("%s: got %d %q, want an error that says what to change", name, response.StatusCode, got)
		}
	}
	if got := log.String(); strings.Contains(got, "level=ERROR") {
		t.Errorf("the log says that the gateway has failed:\n%s", got)
	}
}
