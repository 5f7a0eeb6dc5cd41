package jetstream_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjetstream "github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/jetstream"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/logtest"
	"github.com/holdfast-run/holdfast/services/stream/internal/natstest"
)

var session = log.Stream{Tenant: "t", Root: "s", Session: "s"}

func only(s log.Stream) log.Scope { return log.Scope{Stream: s} }

func message(n int64) *log.Message { return &log.Message{Epoch: 1, Last: n, Body: []byte("body")} }

// broken waits until the follower receives ErrBroken.
func broken(t *testing.T, f *log.Follower) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		_, err := f.Next(ctx, make([]*log.Message, 8))
		if errors.Is(err, log.ErrBroken) {
			return
		}
		if err != nil {
			t.Fatalf("got %v, want a broken feed", err)
		}
	}
}

// expired waits for a later generation.
func expired(t *testing.T, l log.Log, generation uint64) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for l.Generation(session) == generation {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline.C:
			t.Fatal("the generation has not risen")
		}
	}
}

func TestALostConnectionBreaksFeedsAndEndsTheGeneration(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	solo := natstest.StartSolo(t, directory)
	l := open(t, jetstream.Endpoint{URL: solo.URL()}, options())
	first := logtest.Append(t, l, session, message(1))
	feed := l.Follow(only(session))
	defer feed.Leave()
	generation := l.Generation(session)
	solo.Stop()
	broken(t, feed)
	expired(t, l, generation)
	if _, err := l.Append(t.Context(), session, first.Offset, message(2)); !errors.Is(err, fault.Unavailable) {
		t.Errorf("got %v without a server, want unavailable", err)
	}
	solo.Start(t, directory)
	logtest.Append(t, l, session, message(2))
	if got := logtest.Stored(t, l, only(session), 0, 10); len(got) != 2 {
		t.Errorf("got %d messages, want 2", len(got))
	}
}

func TestAStreamThatIsDeletedIsMadeAgainByWhoeverNotices(t *testing.T) {
	t.Parallel()
	for name, notice := range map[string]func(*testing.T, log.Log){
		"an append": func(t *testing.T, l log.Log) {
			if _, err := l.Append(t.Context(), session, 7, message(9)); err == nil {
				t.Error("an append behind a message that is gone was stored")
			}
		},
		"a look": func(t *testing.T, l log.Log) {
			if last, err := l.Last(t.Context(), session); last != nil || err != nil && !errors.Is(err, fault.Unavailable) {
				t.Errorf("got %v, %v; want nothing", last, err)
			}
		},
		"a page": func(t *testing.T, l log.Log) {
			page, err := l.Page(t.Context(), only(session), 0, 10)
			if len(page.Messages) > 0 || err != nil && !errors.Is(err, fault.Unavailable) {
				t.Errorf("got %v, %v; want nothing", page, err)
			}
		},
		"the comparison": func(*testing.T, log.Log) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			solo := natstest.StartSolo(t, t.TempDir())
			o := options()
			o.Check = time.Hour
			if name == "the comparison" {
				o.Check = 100 * time.Millisecond
			}
			l := open(t, jetstream.Endpoint{URL: solo.URL()}, o)
			before := logtest.Append(t, l, session, message(1))
			feed := l.Follow(only(session))
			defer feed.Leave()
			generation := l.Generation(session)
			deleteStreams(t, solo.URL())
			notice(t, l)
			expired(t, l, generation)
			broken(t, feed)
			feed = l.Follow(only(session))
			defer feed.Leave()
			after := logtest.Append(t, l, session, message(2))
			if after.Offset <= before.Offset {
				t.Errorf("got offset %d after %d", after.Offset, before.Offset)
			}
			if n, err := feed.Next(t.Context(), make([]*log.Message, 1)); n != 1 || err != nil {
				t.Errorf("got %d messages, %v; want the one of the new stream", n, err)
			}
		})
	}
}

func deleteStreams(t *testing.T, url string) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := natsjetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if names.Err() != nil {
		t.Fatal(names.Err())
	}
}

func TestAServerWithTooSmallMessagesIsRefused(t *testing.T) {
	t.Parallel()
	o := options()
	o.MessageBytes = 2 << 20
	_, err := jetstream.Open(t.Context(), jetstream.Endpoint{URL: natstest.StartSolo(t, t.TempDir()).URL()}, o)
	if fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Errorf("got %v, want CONFIG_INVALID", err)
	}
}

func TestABootWaitsForTheServerAndNotForEver(t *testing.T) {
	t.Parallel()
	solo := natstest.NewSolo(t)
	o := options()
	o.Boot = 200 * time.Millisecond
	if _, err := jetstream.Open(t.Context(), jetstream.Endpoint{URL: solo.URL()}, o); fault.ReasonOf(err) != "LOG_UNAVAILABLE" {
		t.Errorf("got %v, want LOG_UNAVAILABLE", err)
	}
	opened := make(chan error, 1)
	go func() {
		l, err := jetstream.Open(context.WithoutCancel(t.Context()), jetstream.Endpoint{URL: solo.URL()}, options())
		if err == nil {
			err = l.Close()
		}
		opened <- err
	}()
	solo.Start(t, t.TempDir())
	if err := <-opened; err != nil {
		t.Errorf("got %v from a boot that had time", err)
	}
}

func TestManyProcessesMayBootAtOnceAndTheLastLimitsHold(t *testing.T) {
	t.Parallel()
	solo := natstest.StartSolo(t, t.TempDir())
	errs := make(chan error, 6)
	for range cap(errs) {
		go func() {
			l, err := jetstream.Open(context.WithoutCancel(t.Context()), jetstream.Endpoint{URL: solo.URL()}, options())
			if err == nil {
				err = l.Close()
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	o := options()
	o.MaxAge = 2 * time.Hour
	l := open(t, jetstream.Endpoint{URL: solo.URL()}, o)
	logtest.Append(t, l, session, message(1))
	nc, err := nats.Connect(solo.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := natsjetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "holdfast-live-00")
	if err != nil || stream.CachedInfo().Config.MaxAge != o.MaxAge {
		t.Errorf("got a stream with %v, %v; want the last age", stream, err)
	}
}
