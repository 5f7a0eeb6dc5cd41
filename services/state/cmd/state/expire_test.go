package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// operator is a state service with ExpireSessions only.
type operator struct {
	statev1.UnimplementedOperatorServiceServer
	limit  int32
	answer *statev1.ExpireSessionsResponse
}

func (o *operator) ExpireSessions(_ context.Context, r *statev1.ExpireSessionsRequest) (*statev1.ExpireSessionsResponse, error) {
	o.limit = r.GetLimit()
	return o.answer, nil
}

// served serves the operator, protected by a token.
func served(t *testing.T, o *operator) rpc.Network {
	t.Helper()
	network := rpc.NewMemory()
	server, err := rpc.NewServer(rpc.ServerConfig{Security: rpc.Security{Token: "secret"}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	statev1.RegisterOperatorServiceServer(server, o)
	listener, err := network.Listen(t.Context(), "state:7411")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func(s *rpc.Server) { done <- rpc.Serve(ctx, s, listener, time.Second) }(server)
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return network
}

func TestExpirePrintsTheSummary(t *testing.T) {
	t.Parallel()
	o := &operator{answer: &statev1.ExpireSessionsResponse{Detected: 3, Marked: 2, AlreadyTerminal: 1}}
	var out, log bytes.Buffer
	err := run(t.Context(), served(t, o), []string{"expire", "--address", "state:7411", "--limit", "7"}, []string{"HOLDFAST_INTERNAL_TOKEN=secret"}, &out, &log)
	want := `{"detected":3,"marked":2,"alreadyTerminal":1,"snapshotsDeleted":0,"errors":0}` + "\n"
	if err != nil || out.String() != want || o.limit != 7 {
		t.Errorf("got %q with limit %d, %v; want %q with 7", out.String(), o.limit, err, want)
	}
}

func TestExpireFailsWhenASessionCouldNotBeExpired(t *testing.T) {
	t.Parallel()
	o := &operator{answer: &statev1.ExpireSessionsResponse{Detected: 1, Errors: 1}}
	var out, log bytes.Buffer
	err := run(t.Context(), served(t, o), []string{"expire", "--address", "state:7411"}, []string{"HOLDFAST_INTERNAL_TOKEN=secret"}, &out, &log)
	if err == nil || !strings.Contains(out.String(), `"errors":1`) {
		t.Errorf("got %v and %q, want a failure behind the summary", err, out.String())
	}
}

func TestExpireNeedsTheToken(t *testing.T) {
	t.Parallel()
	var out, log bytes.Buffer
	err := run(t.Context(), served(t, &operator{}), []string{"expire", "--address", "state:7411"}, []string{"HOLDFAST_INTERNAL_TOKEN=wrong"}, &out, &log)
	if fault.KindOf(err) != fault.Unauthenticated || out.Len() > 0 {
		t.Errorf("got %v and %q, want it refused", err, out.String())
	}
}

func TestWrongCommandsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"expired"}, {"expire", "--limit", "-1"}, {"expire", "now"}, {"expire", "--nonsense"}} {
		var out, log bytes.Buffer
		if err := run(t.Context(), rpc.NewMemory(), args, nil, &out, &log); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}
