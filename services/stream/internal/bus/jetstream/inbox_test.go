package jetstream

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// asking is a connection to a server, and the inbox that it has.
func asking(t *testing.T) (*nats.Conn, *inbox) {
	t.Helper()
	nc := connector(t)()
	in, err := openInbox(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, in
}

func TestAQuestionThatNobodyAnswersIsAskedAgain(t *testing.T) {
	t.Parallel()
	nc, in := asking(t)
	var heard atomic.Int32
	answer := func(m *nats.Msg) { // as a server that has a leader again at the third question
		if heard.Add(1) >= 3 {
			_ = m.Respond([]byte("here"))
		}
	}
	if _, err := nc.Subscribe("leader", answer); err != nil {
		t.Fatal(err)
	}
	m, err := in.askAgain(t.Context(), "leader", []byte("where?"), 10*time.Millisecond)
	if err != nil || string(m.Data) != "here" {
		t.Fatalf("got %v, %v; want the answer", m, err)
	}
	if n := heard.Load(); n < 3 {
		t.Errorf("the question was heard %d times, want 3 or more", n)
	}
	if len(in.open) != 0 {
		t.Errorf("%d questions are still open", len(in.open))
	}
}

func TestTheAnswerToAnEarlierQuestionCounts(t *testing.T) {
	t.Parallel()
	nc, in := asking(t)
	first := make(chan *nats.Msg, 100)
	if _, err := nc.Subscribe("slow", func(m *nats.Msg) { first <- m }); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the third question
		early := <-first
		<-first
		<-first
		_ = early.Respond([]byte("late"))
	}()
	m, err := in.askAgain(t.Context(), "slow", nil, 10*time.Millisecond)
	if err != nil || string(m.Data) != "late" {
		t.Errorf("got %v, %v; want the answer to the first question", m, err)
	}
}

func TestAQuestionEndsWithItsContextAndWhereNobodyHearsIt(t *testing.T) {
	t.Parallel()
	nc, in := asking(t)
	if _, err := in.askAgain(t.Context(), "nobody", nil, time.Hour); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("nobody hears it: got %v, want ErrNoResponders", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := nc.Subscribe("mute", func(*nats.Msg) { cancel() }); err != nil {
		t.Fatal(err)
	}
	if _, err := in.askAgain(ctx, "mute", nil, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("it is asked no more: got %v, want %v", err, context.Canceled)
	}
}
