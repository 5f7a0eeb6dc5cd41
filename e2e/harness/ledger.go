package harness

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// Ledger is a fake external system. Like a payment system, it counts its effects and has none for a known key.
type Ledger struct {
	// URL accepts a POST of {"key", "label", "holdMs"}, waits for holdMs, and answers {"label"}. The header
	// Idempotency-Key may carry the key instead.
	URL string

	mu      sync.Mutex
	entries map[string]Entry
	changed chan struct{} // closed and replaced at every post
}

// Entry holds the posts of one label.
type Entry struct {
	Keys  map[string]int // posts by key
	Posts int
}

// StartLedger starts a ledger. It ends with the test. lag, if set, returns the delay before and after each
// effect.
func StartLedger(t testing.TB, lag func() time.Duration) *Ledger {
	t.Helper()
	l := &Ledger{entries: map[string]Entry{}, changed: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var post struct {
			Key, Label string
			HoldMs     int64
		}
		if err := json.NewDecoder(r.Body).Decode(&post); err != nil || post.Label == "" {
			http.Error(w, "the ledger wants a key and a label", http.StatusBadRequest)
			return
		}
		wait(r, lag)
		l.add(cmp.Or(post.Key, r.Header.Get("Idempotency-Key")), post.Label)
		wait(r, func() time.Duration { return time.Duration(post.HoldMs) * time.Millisecond })
		wait(r, lag)
		_ = json.NewEncoder(w).Encode(map[string]string{"label": post.Label}) // fails if the caller has disconnected
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	l.URL = server.URL
	return l
}

// wait waits for lag or for the caller to disconnect.
func wait(r *http.Request, lag func() time.Duration) {
	if lag == nil {
		return
	}
	select {
	case <-time.After(lag()):
	case <-r.Context().Done():
	}
}

func (l *Ledger) add(key, label string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.entries[label]
	if !ok {
		e.Keys = map[string]int{}
	}
	e.Keys[key]++
	e.Posts++
	l.entries[label] = e
	close(l.changed)
	l.changed = make(chan struct{})
}

// Entry returns the posts of a label.
func (l *Ledger) Entry(label string) Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[label]
}

// Await waits until the label has been posted.
func (l *Ledger) Await(t testing.TB, label string) {
	t.Helper()
	limit := time.After(callLimit)
	for {
		l.mu.Lock()
		posts, changed := l.entries[label].Posts, l.changed
		l.mu.Unlock()
		if posts > 0 {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("nobody has posted %s to the ledger within %v", label, callLimit)
		}
	}
}
