package stream

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
)

func TestAServerOnAnotherMachineIsOpenToAllWithoutCredentials(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		urls, creds string
		open        bool
	}{
		{"nats://127.0.0.1:4222", "", false},
		{"nats://127.0.0.1", "", false},
		{"nats://localhost:4222", "", false},
		{"localhost:4222", "", false}, // the client takes an address without a scheme
		{"nats://[::1]:4222", "", false},
		{"nats://nats:4222", "", true},
		{"nats:4222", "", true},
		{"10.0.0.7:4222", "", true},
		{"tls://nats.example.com", "", true},
		{"nats://user:password@nats:4222", "", false},
		{"nats://token@nats:4222", "", false},
		{"nats://nats:4222", "holdfast.creds", false},
		{"nats://127.0.0.1:4222, nats://nats:4222", "", true},
		{"nats://a@one:4222,nats://b@two:4222", "", false},
	} {
		if got := isOpenToAll(tt.urls, tt.creds); got != tt.open {
			t.Errorf("%q with the credentials %q: got %t, want %t", tt.urls, tt.creds, got, tt.open)
		}
	}
}

func TestAStartNamesNATSServersWithoutCredentials(t *testing.T) {
	t.Parallel()
	for url, warned := range map[string]bool{"nats://nats.invalid:4222": true, "nats://holdfast:secret@nats.invalid:4222": false} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the start asks no server
		var log bytes.Buffer
		c := Defaults()
		c.Bus, c.NATSURL = BusNATS, url
		if _, err := New(ctx, c, Peers{Log: slog.New(slog.NewTextHandler(&log, nil))}); err == nil {
			t.Fatalf("%s: the start has reached a server that does not exist", url)
		}
		if got := strings.Contains(log.String(), "without credentials"); got != warned {
			t.Errorf("%s: warned %t, want %t: %s", url, got, warned, &log)
		}
	}
}
