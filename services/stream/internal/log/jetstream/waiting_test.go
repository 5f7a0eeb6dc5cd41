package jetstream_test

import (
	"bytes"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/jetstream"
)

func TestAStartThatWaitsForNATSSaysWhereAndUntilWhenWithoutThePassword(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	if err := taken.Close(); err != nil { // nobody listens there
		t.Fatal(err)
	}
	var log bytes.Buffer
	o := options()
	o.Log, o.Boot = slog.New(slog.NewTextHandler(&log, nil)), 200*time.Millisecond
	_, err = jetstream.Open(t.Context(), jetstream.Endpoint{URL: "nats://me:secret@" + address + ",nats://token@" + address + ",you:secret@" + address}, o)
	if fault.ReasonOf(err) != "LOG_UNAVAILABLE" {
		t.Fatalf("got %v", err)
	}
	masked := strings.Repeat(",nats://"+address, 2)[1:] + "," + address
	for _, want := range []string{"level=WARN", "waiting for NATS", "address=" + masked, "patience=200ms"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("got %s, want %q", log.String(), want)
		}
	}
	if !regexp.MustCompile(`until=\d\d:\d\d:\d\d `).MatchString(log.String()) || !strings.Contains(err.Error(), "at "+masked) {
		t.Errorf("got %s and %v, want the end of the patience and the address", log.String(), err)
	}
	if said := log.String() + err.Error(); strings.Contains(said, "secret") || strings.Contains(said, "token") || strings.Count(log.String(), "waiting for NATS") != 1 {
		t.Errorf("got %s, want one line without credentials", said)
	}
}
