// Package logtest is the conformance suite of live logs. Every implementation must pass it.
package logtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// patience bounds every wait of a test.
const patience = 2 * time.Minute

// Opener returns an empty log. Its Run runs until the test ends, and it removes nothing during the test.
type Opener func(t *testing.T) log.Log

// Run runs the suite.
func Run(t *testing.T, open Opener) {
	t.Helper()
	l := open(t)
	for name, test := range map[string]func(*testing.T, log.Log){
		"AnAppendNeedsTheLastMessage":                   testAppend,
		"OfWritersThatExpectTheSameMessageOneWins":      testRace,
		"PagesHoldAScopeInOrder":                        testPages,
		"APageEndsAtItsSize":                            testPageBytes,
		"AFollowerGetsItsScopeInOrder":                  testFollow,
		"ANotificationReachesFollowersAndIsNotStored":   testNotify,
		"ErasedMessagesAreGoneAndWritersGoOn":           testErase,
		"AFollowerThatFallsBehindIsToldAndGoesOn":       testLag,
		"NothingLiesBetweenWhatIsStoredAndWhatComes":    testNoGap,
		"EveryLegalIDNamesASessionOfItsOwn":             testNames,
		"TheLongestNamesAndALargeBodyAreStoredAndHeard": testLongest,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, l) })
	}
}

func root(t *testing.T) log.Stream {
	return log.Stream{Tenant: "logtest", Root: t.Name(), Session: t.Name()}
}

func child(s log.Stream, name string) log.Stream {
	s.Session = name
	return s
}

func only(s log.Stream) log.Scope   { return log.Scope{Stream: s} }
func family(s log.Stream) log.Scope { return log.Scope{Stream: s, Family: true} }

// Append appends after the last message and retries while the log is unavailable.
func Append(t *testing.T, l log.Log, s log.Stream, m *log.Message) *log.Message {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		last, err := l.Last(t.Context(), s)
		if err == nil && last != nil && last.Last == m.Last {
			return last
		}
		var offset uint64
		if err == nil {
			offset, err = l.Append(t.Context(), s, offsetOf(last), m)
		}
		if err == nil {
			stored := *m
			stored.Offset, stored.Session = offset, s.Session
			return &stored
		}
		if !errors.Is(err, fault.Unavailable) && !errors.Is(err, log.ErrConflict) || time.Now().After(deadline) {
			t.Fatalf("append: %v", err)
		}
	}
}

func offsetOf(m *log.Message) uint64 {
	if m == nil {
		return 0
	}
	return m.Offset
}

func message(n int) *log.Message {
	return &log.Message{Epoch: 7, Last: int64(n), Body: fmt.Appendf(nil, "body %d", n)}
}

// Stored reads all pages with at most limit messages each.
func Stored(t *testing.T, l log.Log, s log.Scope, after uint64, limit int) []*log.Message {
	t.Helper()
	var messages []*log.Message
	for {
		page, err := l.Page(t.Context(), s, after, limit)
		if err != nil {
			t.Fatalf("page after %d: %v", after, err)
		}
		if len(page.Messages) > limit || page.More && len(page.Messages) == 0 {
			t.Fatalf("page after %d: got %d messages, more %v; want 1 to %d", after, len(page.Messages), page.More, limit)
		}
		messages = append(messages, page.Messages...)
		if !page.More {
			return messages
		}
		after = messages[len(messages)-1].Offset
	}
}

func same(t *testing.T, got, want []*log.Message) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d messages, want %d", len(got), len(want))
	}
	for i := range want {
		if g, w := fmt.Sprintf("%+v", *got[i]), fmt.Sprintf("%+v", *want[i]); g != w {
			t.Fatalf("message %d: got %.300s, want %.300s", i, g, w)
		}
	}
}

// take reads count messages above the offset from a feed.
func take(t *testing.T, f *log.Follower, after uint64, count int) []*log.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var messages []*log.Message
	for len(messages) < count {
		var batch [3]*log.Message
		n, err := f.Next(ctx, batch[:])
		if err != nil {
			t.Fatalf("next: %v after %d of %d messages", err, len(messages), count)
		}
		for _, m := range batch[:n] {
			if m.Offset > after {
				messages = append(messages, m)
			}
		}
	}
	return messages
}

func testAppend(t *testing.T, l log.Log) {
	s := root(t)
	if last, err := l.Last(t.Context(), s); last != nil || err != nil {
		t.Fatalf("got last %v, %v of a new session; want none", last, err)
	}
	if _, err := l.Append(t.Context(), s, 5, message(1)); !errors.Is(err, log.ErrConflict) {
		t.Errorf("got %v behind a message that never was, want a conflict", err)
	}
	first, second := Append(t, l, s, message(1)), Append(t, l, s, message(2))
	if first.Offset == 0 || second.Offset <= first.Offset {
		t.Errorf("got offsets %d, %d; want them to rise", first.Offset, second.Offset)
	}
	for _, expected := range []uint64{0, first.Offset, second.Offset + 1} {
		if _, err := l.Append(t.Context(), s, expected, message(3)); !errors.Is(err, log.ErrConflict) {
			t.Errorf("got %v behind offset %d, want a conflict", err, expected)
		}
	}
	Append(t, l, child(s, "other"), message(9))
	last, err := l.Last(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	same(t, []*log.Message{last}, []*log.Message{second})
}

func testRace(t *testing.T, l log.Log) {
	s := root(t)
	const rounds, writers = 20, 4
	var expected uint64
	for range rounds {
		offsets := make([]uint64, writers)
		var group sync.WaitGroup
		for i := range writers {
			group.Go(func() {
				offset, err := l.Append(t.Context(), s, expected, message(i))
				if err == nil {
					offsets[i] = offset
				} else if !errors.Is(err, log.ErrConflict) {
					t.Errorf("append: %v", err)
				}
			})
		}
		group.Wait()
		won := 0
		for _, offset := range offsets {
			if offset > 0 {
				won++
				expected = offset
			}
		}
		if won != 1 {
			t.Fatalf("%d of %d writers won, want 1", won, writers)
		}
	}
}

func testPages(t *testing.T, l log.Log) {
	s := root(t)
	if got := Stored(t, l, family(s), 0, 10); len(got) != 0 {
		t.Fatalf("got %d messages of a new family", len(got))
	}
	var all, mine []*log.Message
	for i := range 30 {
		m := Append(t, l, child(s, fmt.Sprint("child ", i%3)), message(i+1))
		all = append(all, m)
		if i%3 == 1 {
			mine = append(mine, m)
		}
	}
	for _, limit := range []int{1, 4, 30, 64} {
		same(t, Stored(t, l, family(s), 0, limit), all)
		same(t, Stored(t, l, only(child(s, "child 1")), 0, limit), mine)
		same(t, Stored(t, l, family(s), all[11].Offset, limit), all[12:])
		same(t, Stored(t, l, only(child(s, "child 1")), all[11].Offset, limit), mine[4:])
	}
	if got := Stored(t, l, family(s), all[29].Offset, 10); len(got) != 0 {
		t.Errorf("got %d messages behind the last one", len(got))
	}
}

func testPageBytes(t *testing.T, l log.Log) {
	s := root(t)
	for i := range 12 {
		Append(t, l, s, &log.Message{Epoch: 1, Last: int64(i + 1), Body: make([]byte, log.PageBytes/4)})
	}
	page, err := l.Page(t.Context(), only(s), 0, 12)
	if n := len(page.Messages); err != nil || n < 1 || n > 5 || !page.More {
		t.Errorf("got %d messages, more %v, %v; want a page of about 4", n, page.More, err)
	}
	if got := Stored(t, l, only(s), 0, 12); len(got) != 12 {
		t.Errorf("got %d messages in all pages, want 12", len(got))
	}
}

func testNotify(t *testing.T, l log.Log) {
	s, other := root(t), child(root(t), "other")
	mine, below, theirs := l.Follow(only(s)), l.Follow(family(s)), l.Follow(only(other))
	defer mine.Leave()
	defer below.Leave()
	defer theirs.Leave()
	if err := l.Notify(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	stored := Append(t, l, other, message(1))
	for name, tc := range map[string]struct {
		follower *log.Follower
		session  string
		offset   uint64
	}{
		"the session's own": {mine, s.Session, 0},
		"the family's":      {below, s.Session, 0},
		"another session's": {theirs, "other", stored.Offset},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var batch [1]*log.Message
		for range 2 { // a notification and a stored message have no order
			if _, err := tc.follower.Next(ctx, batch[:]); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if batch[0].Offset == tc.offset {
				break
			}
		}
		if got := batch[0]; got.Session != tc.session || got.Offset != tc.offset {
			t.Errorf("%s: got %v, want session %s, offset %d", name, got, tc.session, tc.offset)
		}
	}
	if m, err := l.Last(t.Context(), s); err != nil || m != nil {
		t.Errorf("stored: got %v, %v", m, err)
	}
}

func testFollow(t *testing.T, l log.Log) {
	s := root(t)
	before := Append(t, l, s, message(1))
	mine, tree, other := l.Follow(only(s)), l.Follow(family(child(s, "any"))), l.Follow(only(child(s, "b")))
	defer mine.Leave()
	defer tree.Leave()
	defer other.Leave()
	a, b, c := Append(t, l, s, message(2)), Append(t, l, child(s, "b"), message(3)), Append(t, l, s, message(4))
	same(t, take(t, mine, before.Offset, 2), []*log.Message{a, c})
	same(t, take(t, tree, before.Offset, 3), []*log.Message{a, b, c})
	same(t, take(t, other, before.Offset, 1), []*log.Message{b})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := mine.Next(ctx, make([]*log.Message, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v with nothing to come, want the end of the context", err)
	}
}

func testLag(t *testing.T, l log.Log) {
	s := root(t)
	slow, quick := l.Follow(only(s)), l.Follow(only(s))
	defer slow.Leave()
	defer quick.Leave()
	var last *log.Message
	for i := range 20 {
		m := message(i + 1)
		m.Body = make([]byte, 8<<10)
		last = Append(t, l, s, m)
		same(t, take(t, quick, last.Offset-1, 1), []*log.Message{last})
	}
	if n, err := slow.Next(t.Context(), make([]*log.Message, 1)); !errors.Is(err, log.ErrLagged) {
		t.Fatalf("got %d messages, %v; want a lag", n, err)
	}
	next := Append(t, l, s, message(99))
	same(t, take(t, slow, last.Offset, 1), []*log.Message{next})
}

// testNoGap joins readers while a writer appends. Each must see everything once.
func testNoGap(t *testing.T, l log.Log) {
	s := root(t)
	const count = 60
	Append(t, l, s, message(1))
	var group sync.WaitGroup
	group.Go(func() {
		for i := 1; i < count; i++ {
			Append(t, l, s, message(i+1))
		}
	})
	for range 6 {
		group.Go(func() {
			feed := l.Follow(only(s))
			defer feed.Leave()
			got := Stored(t, l, only(s), 0, 7)
			if rest := count - len(got); rest > 0 {
				got = append(got, take(t, feed, got[len(got)-1].Offset, rest)...)
			}
			for i, m := range got {
				if m.Last != int64(i+1) {
					t.Errorf("message %d: got number %d", i, m.Last)
					return
				}
			}
		})
	}
	group.Wait()
}

func testErase(t *testing.T, l log.Log) {
	s := root(t)
	s.Tenant = t.Name() + " *.>" // a tenant of its own
	below, other := child(s, "below"), log.Stream{Tenant: s.Tenant, Root: "other", Session: "other"}
	stranger := log.Stream{Tenant: t.Name(), Root: s.Root, Session: s.Session}
	feed := l.Follow(family(s))
	defer feed.Leave()
	left := func(want map[log.Stream]int) {
		t.Helper()
		for at, n := range want {
			if got := Stored(t, l, only(at), 0, 9); len(got) != n {
				t.Errorf("%v: got %d messages, want %d", at, len(got), n)
			}
		}
	}
	first := Append(t, l, s, message(1))
	for _, at := range []log.Stream{below, other, stranger} {
		Append(t, l, at, message(1))
	}
	erase := func(at log.Stream) {
		t.Helper()
		for range 2 {
			if err := l.Erase(t.Context(), at); err != nil {
				t.Fatal(err)
			}
		}
	}
	erase(below)
	left(map[log.Stream]int{s: 1, below: 0, other: 1, stranger: 1})
	erase(child(s, ""))
	left(map[log.Stream]int{s: 0, other: 1, stranger: 1})
	if last, err := l.Last(t.Context(), s); err != nil || last != nil {
		t.Errorf("got last message %v, %v, want none", last, err)
	}
	if _, err := l.Append(t.Context(), s, first.Offset, message(2)); !errors.Is(err, log.ErrConflict) {
		t.Errorf("got %v, want a conflict with the erased message", err)
	}
	next := Append(t, l, s, message(3))
	if next.Offset <= first.Offset {
		t.Errorf("got the offset %d again", next.Offset)
	}
	take(t, feed, 0, 3)
	erase(log.Stream{Tenant: s.Tenant})
	left(map[log.Stream]int{s: 0, other: 0, stranger: 1})
}

// hostile are ids with a meaning in subjects, or ids that a careless encoding confuses.
var hostile = []string{
	"a.b", "a..b", ".", "..", "*", ">", "a.*", "a.>", "$JS.API", "$SYS.>",
	" ", "a b", " a", "a ", "a", "A", "=61", "=2e", "a=2eb", "a%2eb", "a_b", "a-b", "a=", "=", "==",
	"päivää", "日本語", "🙂", "e\u0301", "\u00e9", "\u202e", "a/b", `a\b`, `"`, "'", "`", "{}", "%s", "<>", "&", "|", "\u00a0",
	strings.Repeat("x", 256), strings.Repeat(".", 256), strings.Repeat("日", 85) + "x", strings.Repeat("x", 255),
}

func testNames(t *testing.T, l log.Log) {
	s := root(t)
	tree := l.Follow(family(s))
	defer tree.Leave()
	var want []*log.Message
	for i, id := range hostile {
		want = append(want, Append(t, l, child(s, id), message(i+1)))
		alone := log.Stream{Tenant: t.Name(), Root: id, Session: id}
		m := Append(t, l, alone, message(i+1))
		same(t, Stored(t, l, family(alone), 0, 64), []*log.Message{m})
	}
	same(t, take(t, tree, 0, len(want)), want)
	same(t, Stored(t, l, family(s), 0, 64), want)
	for i, id := range hostile {
		same(t, Stored(t, l, only(child(s, id)), 0, 64), want[i:i+1])
	}
}

func testLongest(t *testing.T, l log.Log) {
	long := strings.Repeat("é", 128)
	s := log.Stream{Tenant: long, Root: long, Session: long}
	feed := l.Follow(only(s))
	defer feed.Leave()
	want := []*log.Message{Append(t, l, s, &log.Message{Epoch: 1<<62 + 1, Last: 1<<53 - 1, Body: make([]byte, 256<<10)})}
	same(t, take(t, feed, 0, 1), want)
	same(t, Stored(t, l, only(s), 0, 1), want)
}
