package cloudflare

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/live"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// instances are those with sockets on this gateway.
type instances struct {
	mu  sync.Mutex
	all map[instanceKey]*instance
}

type instanceKey struct {
	tenant, session string
	owner           string // of Identity.Owner: callers that reach other sessions share no readings
}

// instance is one session with sockets on this gateway.
type instance struct {
	*Sockets
	instanceKey

	users  int // guarded by the mu of instances
	cancel context.CancelFunc
	ended  chan struct{}
	stale  chan struct{} // of size 1: the session may have changed

	reading chan struct{} // of size 1: full during a reading, so that each sees at least what the one before has seen
	begun   atomic.Int64  // readings

	mu      sync.Mutex
	newest  *reading
	members map[*connection]bool
}

// reading is the session as read at one moment.
type reading struct {
	*statev1.GetSessionResponse // nil if there is no session

	number int64  // readings are numbered as they begin, from 1
	digest digest // of the custom state
}

// digest identifies a JSON value, however it is written.
type digest [sha256.Size]byte

// digestOf returns the digest of a JSON text.
func digestOf(text string) digest {
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return sha256.Sum256([]byte(text))
	}
	canonical, err := json.Marshal(value)
	if err != nil { // cannot happen: the value was JSON
		return sha256.Sum256([]byte(text))
	}
	return sha256.Sum256(canonical)
}

func newInstance(s *Sockets, k instanceKey) *instance {
	return &instance{
		Sockets: s, instanceKey: k, ended: make(chan struct{}), stale: make(chan struct{}, 1), reading: make(chan struct{}, 1),
		members: map[*connection]bool{},
	}
}

// join adds a socket of the caller to its instance. The socket must leave.
func (s *Sockets) join(caller auth.Identity, c *connection) *instance {
	k := instanceKey{caller.Tenant, c.address.session, caller.Owner()}
	s.instances.mu.Lock()
	defer s.instances.mu.Unlock()
	i := s.instances.all[k]
	if i == nil {
		i = newInstance(s, k)
		if s.instances.all == nil {
			s.instances.all = map[instanceKey]*instance{}
		}
		s.instances.all[k] = i
		ctx, cancel := context.WithCancel(auth.With(context.Background(), caller)) // the instance outlives its first socket
		i.cancel = cancel
		go i.watch(ctx)
	}
	i.users++
	i.mu.Lock()
	defer i.mu.Unlock()
	i.members[c] = true
	return i
}

// leave removes a socket. The last one ends the instance.
func (i *instance) leave(c *connection) {
	i.mu.Lock()
	delete(i.members, c)
	i.mu.Unlock()
	i.instances.mu.Lock()
	i.users--
	last := i.users == 0
	if last {
		delete(i.instances.all, i.instanceKey)
	}
	i.instances.mu.Unlock()
	if last {
		i.cancel()
		<-i.ended
	}
}

// changed makes the sockets of all gateways read the session soon.
func (i *instance) changed(ctx context.Context) {
	i.refresh()
	i.Live.Notify(ctx, i.ref())
}

func (i *instance) ref() *streamv2.StreamRef {
	return &streamv2.StreamRef{Tenant: i.tenant, RootSessionId: i.session, SessionId: i.session}
}

// refresh makes the instance read the session soon.
func (i *instance) refresh() {
	select {
	case i.stale <- struct{}{}:
	default: // a reading is due already
	}
}

// read reads the session and tells the sockets, unless another caller has begun to do so after this call.
func (i *instance) read(ctx context.Context) (*reading, error) {
	before := i.begun.Load()
	select {
	case i.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-i.reading }()
	if last := i.last(); last != nil && last.number > before {
		return last, nil
	}
	number := i.begun.Add(1)
	got, err := i.Sessions.SessionDetails(ctx, i.tenant, i.session)
	if errors.Is(err, fault.NotFound) {
		got, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	now := &reading{GetSessionResponse: got, number: number, digest: digestOf(cmp.Or(got.GetSession().GetCustomState(), noState))}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.newest = now
	for c := range i.members {
		c.wake()
	}
	return now, nil
}

// last returns the newest reading; nil before the first.
func (i *instance) last() *reading {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.newest
}

// watch reads the session whenever it may have changed, until ctx ends.
func (i *instance) watch(ctx context.Context) {
	defer close(i.ended)
	var w watcher
	for w.log == nil {
		if _, err := i.read(retry.Request(ctx)); err == nil {
			after := i.last().GetSession().GetPosition()
			w.log = i.Live.Join(ctx, i.ref(), after)
		} else if !i.pause(ctx, err) {
			return
		}
	}
	defer w.log.Leave()
	w.live = w.log.Live
	i.refresh() // what has happened before the join
	for {
		changed, wake := w.take()
		if changed {
			i.refresh()
		}
		interval := i.Poll
		if !w.live { // no hint comes
			interval = min(interval, blindPoll)
		}
		poll := time.NewTimer(interval)
		select {
		case <-wake:
			poll.Stop()
			continue
		case <-i.stale:
		case <-poll.C:
		case <-ctx.Done():
			poll.Stop()
			return
		}
		poll.Stop()
		if _, err := i.read(retry.Request(ctx)); err != nil && !i.pause(ctx, err) {
			return
		}
	}
}

// blindPoll is the longest poll interval without a live log.
const blindPoll = 2 * time.Second

// pause waits before the next reading after a failure. It returns false if ctx has ended.
func (i *instance) pause(ctx context.Context, err error) bool {
	i.Log.DebugContext(ctx, "the session of an instance cannot be read", "session", i.session, "error", err)
	select {
	case <-time.After(blindPoll):
		i.refresh()
		return true
	case <-ctx.Done():
		return false
	}
}

// watchBatch is how many records are taken from the log at once.
const watchBatch = 16

// watcher looks for changes of the session in the live log.
type watcher struct {
	log   *live.Reader
	live  bool   // the log delivers live records
	run   string // of the last attempt
	patch bool   // the step in flight changes the state
	batch [watchBatch]*live.Record
}

// take takes what the log has and reports whether the session may have changed. wake is closed when
// the log has more.
func (w *watcher) take() (changed bool, wake <-chan struct{}) {
	for {
		n, wake, err := w.log.Take(w.batch[:])
		changed = changed || err != nil // records were lost
		for at, r := range w.batch[:n] {
			w.batch[at] = nil
			changed = w.note(r) || changed
		}
		if n == 0 && err == nil {
			return changed, wake
		}
	}
}

// note notes a record and reports whether it says that the session has changed: a run has begun or
// ended, or a step was committed that changes the state.
func (w *watcher) note(r *live.Record) bool {
	switch {
	case r.Changed:
		return true
	case r.CaughtUp:
		w.live = true
		return true
	case r.Down:
		w.live = false
		return false
	case r.Session != "":
		return false
	case r.Boundary != nil:
		changed := w.patch || r.Boundary.GetRunEnded() != nil
		w.patch = false
		return changed
	}
	begins := r.Attempt != nil && r.Attempt.GetRunId() != w.run
	if r.Attempt != nil {
		w.run = r.Attempt.GetRunId()
	}
	for _, f := range r.Frames {
		w.patch = w.patch || f.Chunk.GetStatePatch() != nil
	}
	return begins
}
