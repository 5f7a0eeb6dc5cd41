package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Subject is an empty store, with access beyond its interface.
type Subject struct {
	Store store.Store
	// Rows counts the rows of a session by table. It may omit empty tables.
	Rows func(*testing.T, session.Key) map[string]int
	// Reopen closes the store and opens the same database; nil for a store in memory.
	Reopen func(*testing.T) store.Store
	// Second opens the same database again, as another replica does; nil for a store of
	// a single process.
	Second func(*testing.T) store.Store
}

// Run runs the suite. Each case opens its own store.
func Run(t *testing.T, open func(*testing.T) Subject) {
	for _, c := range suite() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(newHarness(t, open(t)))
		})
	}
}

func suite() (all []suiteCase) {
	for _, group := range [][]suiteCase{
		starts, claims, losses, caps, orphans, unserved, handovers, steps, ends, reads, concurrency, lifecycle, stops, waitingRuns, edits,
		answeringRuns, failedSteps, bulkAnswers, storedSteps, roundTrips, states, conversations, checkpointReads, calls, answers, families,
		deletions,
		lists, privateStores, openCalls, paging, accounts, memories, files, governors, storedAgents, audits, outbox, tenants, batches, replicas, races,
	} {
		all = append(all, group...)
	}
	return all
}

type suiteCase struct {
	name string
	run  func(*harness)
}

// harness is a store with one executor and a manual clock.
type harness struct {
	*testing.T
	Subject
	now  session.Millis
	ids  atomic.Int64
	held map[session.Key]session.ClaimRef // claims made by claimOf while it searched
}

const (
	agent    = "support"
	executor = "executor-1"
)

var home = session.Key{Tenant: "acme", SessionID: "s1"}

// at returns the key of another session of home's tenant.
func at(id string) session.Key { return session.Key{Tenant: home.Tenant, SessionID: id} }

func newHarness(t *testing.T, s Subject) *harness {
	h := &harness{T: t, Subject: s, now: 1_700_000_000_000}
	h.announce(executor)
	return h
}

// id returns a new id.
func (h *harness) id(prefix string) string { return fmt.Sprintf("%s_%d", prefix, h.ids.Add(1)) }

func (h *harness) announce(executorID string) {
	h.Helper()
	err := h.Store.Announce(h.Context(), executorID, []session.Agent{{Type: agent, Description: "helps"}}, h.now)
	h.must(err)
}

func (h *harness) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatalf("got %v, want no error", err)
	}
}

// refuses fails the test unless err is a fault of the kind with the reason.
func (h *harness) refuses(err error, kind fault.Kind, reason string) {
	h.Helper()
	if fault.ReasonOf(err) != reason || fault.KindOf(err) != kind {
		h.Errorf("got %v (%v), want %v (%s)", err, fault.KindOf(err), kind, reason)
	}
}

// same fails the test unless got equals want in every field. An empty list equals nil.
func same(b testing.TB, what string, got, want any) {
	b.Helper()
	if !reflect.DeepEqual(normal(got), normal(want)) {
		b.Errorf("%s\n got %+v\nwant %+v", what, got, want)
	}
}

// mustEqual is same for cases and histories, and ends the test.
func mustEqual(t failer, what string, got, want any) {
	if !reflect.DeepEqual(normal(got), normal(want)) {
		t.Fatalf("%s\n got %+v\nwant %+v", what, flat(reflect.ValueOf(got)), flat(reflect.ValueOf(want)))
	}
}

// Normalize returns a copy of the value with nil for empty lists and maps: a store may return
// either.
func Normalize(value any) any { return normal(value) }

// normal returns a copy of the value with nil for empty lists and maps.
func normal(value any) any {
	v := reflect.ValueOf(value)
	if !v.IsValid() {
		return value
	}
	c := reflect.New(v.Type()).Elem()
	c.Set(flat(v))
	return c.Interface()
}

// flat is normal for reflected values.
func flat(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			c.Field(i).Set(flat(v.Field(i)))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			c.Set(reflect.New(v.Type().Elem()))
			c.Elem().Set(flat(v.Elem()))
		}
	case reflect.Slice:
		for i := range v.Len() {
			c.Set(reflect.Append(c, flat(v.Index(i))))
		}
	case reflect.Map:
		if v.Len() > 0 {
			c.Set(v)
		}
	default:
		c.Set(v)
	}
	return c
}

// send runs a command on one session and applies its consequences to the family, as the
// server does.
func send(
	t testing.TB, s store.Store, f session.Family, key session.Key, need session.Need, decide func(...*session.View) (*session.Change, error),
) error {
	return sendThen(t, s, f, key, need, decide, nil)
}

// sendThen is send with a function to extend the change of the command's own session; nil for
// none.
func sendThen(
	t testing.TB, s store.Store, f session.Family, key session.Key, need session.Need, decide func(...*session.View) (*session.Change, error),
	then func(*session.View, *session.Change) error,
) error {
	const deepest = 20 // generations of a family
	targets := []session.Target{{Key: key, Need: need}}
	for range deepest {
		err := s.Update(t.Context(), targets, weight, func(views []*session.View) ([]*session.Change, error) {
			own, err := decide(views...)
			if err != nil {
				return nil, err
			}
			family := f
			family.Targets = targets
			changes, err := family.Propagate(views, own)
			if then != nil && len(changes) > 0 {
				err = then(views[0], changes[0])
			}
			return changes, err
		})
		wider, ok := errors.AsType[*session.IncompleteViewError](err)
		if !ok {
			return err
		}
		targets = wider.Extend(targets)
	}
	return errors.New("the family of the session has no end")
}

// weight is the size of a command in bytes, as passed to the store.
const weight = 100

// single adapts a command on one session.
func single(decide func(*session.View) (*session.Change, error)) func(...*session.View) (*session.Change, error) {
	return func(views ...*session.View) (*session.Change, error) { return decide(views[0]) }
}

// capturing adapts a command on one session, and stores its answer.
func capturing[A any](answer *A, decide func(*session.View) (*session.Change, A, error)) func(...*session.View) (*session.Change, error) {
	return capturingWide(answer, func(views ...*session.View) (*session.Change, A, error) { return decide(views[0]) })
}

// capturingWide is capturing for a command on several sessions.
func capturingWide[A any](
	answer *A, decide func(...*session.View) (*session.Change, A, error),
) func(...*session.View) (*session.Change, error) {
	return func(views ...*session.View) (change *session.Change, err error) {
		change, *answer, err = decide(views...)
		return change, err
	}
}
