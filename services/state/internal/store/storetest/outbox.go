package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Times of the cases, in milliseconds.
const (
	claimTime session.Millis = 60_000
	dayTime   session.Millis = 24 * 60 * 60 * 1000
)

var retries = session.Retries{For: 3 * dayTime, KeepDelivered: dayTime, KeepDead: 30 * dayTime}

var outbox = []suiteCase{
	{"an event is stored for each subscription that wants it, with its change or not at all", func(h *harness) {
		h.start(h.startOf(home))
		h.event(home, nil, "early")
		h.subscribe("acme", session.Subscription{ID: "all"})
		h.subscribe("acme", session.Subscription{ID: "both", Kinds: []session.EventKind{"k", "other"}, Agents: []string{"no\"t", agent}})
		h.subscribe("acme", session.Subscription{ID: "kind", Kinds: []session.EventKind{"other"}})
		h.subscribe("acme", session.Subscription{ID: "agent", Agents: []string{"another"}})
		h.subscribe("other", session.Subscription{ID: "all"})
		h.event(home, errRefused, "lost")
		h.event(home, nil, "first", "second", "third")
		h.must(h.Store.Update(h.Context(), []session.Target{{Key: home}}, weight, func([]*session.View) ([]*session.Change, error) {
			return []*session.Change{{Delete: true, Events: []session.Event{h.eventOf("last")}}}, nil
		}))
		for id, want := range map[string]string{"all": "last third second first", "both": "last third second first", "kind": "", "agent": ""} {
			same(h, id, h.deliveryIDs("acme", store.DeliveryQuery{SubscriptionID: id, Limit: 9}), strings.Fields(want))
		}
		same(h, "another tenant", h.deliveryIDs("other", store.DeliveryQuery{Limit: 9}), []string(nil))
		same(h, "pages", h.deliveryIDs("acme", store.DeliveryQuery{SubscriptionID: "all", Limit: 2}), []string{"last", "third"})
	}},
	{"every field of subscriptions and deliveries is stored", func(h *harness) {
		claimed, idle, err := h.Store.ClaimDeliveries(h.Context(), h.deliveryClaim(executor, "c0", 9, 9))
		if err != nil || !idle || len(claimed) > 0 {
			h.Errorf("got %v, idle %v, %v; want an idle outbox", claimed, idle, err)
		}
		sub := session.Subscription{
			ID: "w", URL: "https://a.example/ü", Kinds: []session.EventKind{"k"}, Agents: []string{agent}, Secrets: []string{"new", "old"},
			Paused: true, CreatedBy: "user:u", CreatedAt: 5, UpdatedAt: 6,
		}
		h.must(h.Store.PutSubscription(h.Context(), "acme", sub, 1))
		h.start(h.startOf(home))
		h.event(home, nil, "e")
		got, err := h.Store.Subscription(h.Context(), "acme", "w")
		h.must(err)
		same(h, "subscription", *got, sub)
		sub.CreatedBy, sub.CreatedAt, sub.Paused = "ignored", 9, false
		h.must(h.Store.PutSubscription(h.Context(), "acme", sub, 1))
		sub.CreatedBy, sub.CreatedAt = "user:u", 5
		all, err := h.Store.Subscriptions(h.Context(), "acme")
		h.must(err)
		same(h, "subscriptions", all, []session.Subscription{sub})
		h.refuses(h.Store.PutSubscription(h.Context(), "acme", session.Subscription{ID: "more"}, 1), fault.Exhausted, "SUBSCRIPTIONS_FULL")
		claimed = h.claimDeliveries(executor, "c1", 9)
		if len(claimed) != 1 || claimed[0].Tenant != "acme" || claimed[0].URL != sub.URL || !slices.Equal(claimed[0].Secrets, sub.Secrets) {
			h.Fatalf("got %+v", claimed)
		}
		same(h, "delivery", claimed[0].Delivery, session.Delivery{
			Number: claimed[0].Number, SubscriptionID: "w", SessionID: home.SessionID, Event: h.eventOf("e"), Status: session.DeliveryPending,
			DueAt: h.now + claimTime, FirstAt: h.now, Attempts: 1, ExecutorID: executor, ClaimID: "c1", ExpiresAt: h.now + session.MaxDeliveryAge,
		})
		_, err = h.Store.Subscription(h.Context(), "other", "w")
		h.refuses(err, fault.NotFound, "SUBSCRIPTION_NOT_FOUND")
	}},
	{"the deliveries of a session go one after the other, also after failures", func(h *harness) {
		h.subscribe("acme", session.Subscription{ID: "w"})
		h.start(h.startOf(home))
		h.start(h.startOf(at("s2")))
		h.event(home, nil, "a1", "a2")
		h.event(at("s2"), nil, "b1")
		h.event(home, nil, "a3")
		h.expectClaim("c1", "a1 b1")
		h.expectClaim("c2", "")
		h.report("c1", 2, func(d *session.Delivery) {
			if d.ID == "b1" {
				d.Delivered(retries, h.now)
				return
			}
			d.Failed(retries, h.now, "down", 0, 0)
		})
		h.expectClaim("c3", "")
		h.now += 5_000
		h.expectClaim("c4", "a1")
		h.report("c4", 1, func(d *session.Delivery) { d.Delivered(retries, h.now) })
		h.expectClaim("c5", "a2")
		h.report("c5", 1, func(d *session.Delivery) { d.Delivered(retries, h.now) })
		h.expectClaim("c6", "a3")
		h.report("c6", 1, func(d *session.Delivery) {
			d.FirstAt = h.now - 3*dayTime // an old one
			d.Failed(retries, h.now, "down for days", 0, 0)
		})
		list, err := h.Store.Deliveries(h.Context(), "acme", store.DeliveryQuery{Status: session.DeliveryDead, Limit: 9})
		h.must(err)
		if len(list) != 1 || list[0].ID != "a3" || list[0].Error != "down for days" || list[0].EndedAt != h.now {
			h.Errorf("got dead deliveries %+v", list)
		}
		backlog, err := h.Store.OutboxBacklog(h.Context(), "", 9)
		h.must(err)
		same(h, "backlog", backlog, store.OutboxBacklog{Dead: 1})
	}},
	{"a claim of deliveries ends with its time and with its executor", func(h *harness) {
		h.subscribe("acme", session.Subscription{ID: "w"})
		h.start(h.startOf(home))
		h.event(home, nil, "e")
		same(h, "claims of an unregistered executor", len(h.claimDeliveries("unknown", "c0", 9)), 0)
		h.announce("executor-2")
		same(h, "claims", len(h.claimDeliveries("executor-2", "c1", 9)), 1)
		h.expectClaim("c2", "")
		_, err := h.Store.UnregisterUnseen(h.Context(), map[string]session.Millis{"executor-2": h.now})
		h.must(err)
		h.expectClaim("c2", "e")
		h.report("c1", 0, func(*session.Delivery) { h.Error("a former claim is reported") })
		h.now += claimTime
		h.expectClaim("c3", "e")
		h.report("c3", 1, func(d *session.Delivery) { d.Delivered(retries, h.now) })
		h.report("c3", 0, func(*session.Delivery) { h.Error("a report counts twice") })
		h.expectClaim("c4", "")
	}},
	{"subscriptions take turns, each with few deliveries in progress", func(h *harness) {
		for _, id := range []string{"busy", "calm"} {
			h.subscribe("acme", session.Subscription{ID: id, Kinds: []session.EventKind{session.EventKind(id)}})
		}
		h.subscribe("other", session.Subscription{ID: "paused", Paused: true})
		for i := range 8 {
			for _, tenant := range []string{"acme", "other"} {
				key := session.Key{Tenant: tenant, SessionID: fmt.Sprint("s", i)}
				h.start(h.startOf(key))
				kind := "busy"
				if i >= 6 {
					kind = "calm"
				}
				h.event(key, nil, fmt.Sprint(kind, i), kind)
			}
		}
		h.expectClaim("c1", "busy0 calm6", 2)
		h.expectClaim("c2", "busy1 busy2 calm7") // three at once
		h.expectClaim("c3", "")
		h.report("c2", 3, func(d *session.Delivery) { d.Delivered(retries, h.now) })
		h.expectClaim("c4", "busy3 busy4")
	}},
	{"deliveries are replayed and expire", func(h *harness) {
		h.subscribe("acme", session.Subscription{ID: "w"})
		for i := range 4 {
			key := at(fmt.Sprint("s", i))
			h.start(h.startOf(key))
			h.event(key, nil, fmt.Sprint("e", i))
		}
		h.expectClaim("c1", "e0 e1 e2", 9)
		numbers := map[string]int64{}
		h.report("c1", 3, func(d *session.Delivery) {
			numbers[d.ID] = d.Number
			if d.ID == "e0" {
				d.Delivered(retries, h.now)
				return
			}
			d.FirstAt = 0
			d.Failed(retries, h.now, "gone", 0, 0)
		})
		h.replay("w", numbers["e0"], 1)
		h.replay("another", 0, 0)
		h.replay("w", 0, 2)
		h.replay("w", numbers["e0"], 0)
		h.expectClaim("c2", "e0 e1 e2") // as due as e3, and older
		h.report("c2", 3, func(d *session.Delivery) {
			if d.Attempts != 1 || d.FirstAt != h.now {
				h.Errorf("got %+v of a replayed delivery", d)
			}
			d.Delivered(retries, h.now)
		})
		expire := func(now session.Millis, most int, want int64) {
			h.Helper()
			n, err := h.Store.ExpireDeliveries(h.Context(), now, most, 9)
			h.must(err)
			same(h, "expired", n, want)
		}
		expire(h.now+dayTime-1, 1, 0)
		expire(h.now+dayTime, 1, 3)
		h.event(at("s1"), nil, "newest")
		expire(h.now, 1, 1)
		same(h, "left", h.deliveryIDs("acme", store.DeliveryQuery{Limit: 9}), []string{"newest"})
	}},
	{"a delivery tells what is stored, and less after a deletion", func(h *harness) {
		key := h.populateSession(home)
		h.subscribe("acme", session.Subscription{ID: "w"})
		run := h.snapshot(key).Current
		tell := func(id string, run, call string) {
			e := h.eventOf(id)
			e.RunID, e.CallID, e.RootID = run, call, key.SessionID
			h.must(h.tell(key, nil, e))
		}
		tell("call", run.RunID, "c2")
		claimed := h.claimDeliveries(executor, "c1", 9)
		if len(claimed) != 1 || claimed[0].Call == nil || claimed[0].Call.CallID != "c2" || claimed[0].Call.ToolName == "" ||
			claimed[0].Run != nil {
			h.Fatalf("got %+v of a call", claimed)
		}
		same(h, "session", *claimed[0].Session, session.Session{
			UserID: "u", Metadata: map[string]string{"k": "v"}, Status: h.snapshot(key).Session.Status,
		})
		h.report("c1", 1, func(d *session.Delivery) { d.Delivered(retries, h.now) })

		ended := at("ended")
		h.start(h.startOf(ended))
		ref := h.claimOf(ended)
		h.finish(ref)
		e := h.eventOf("run")
		e.RunID = ref.RunID
		h.must(h.tell(ended, nil, e))
		for i, most := range []int{len(completed.Output), len(completed.Output) - 1} {
			claimed, _, err := h.Store.ClaimDeliveries(h.Context(), h.deliveryClaim(executor, fmt.Sprint("run", i), 9, most))
			h.must(err)
			if len(claimed) != 1 || claimed[0].Run == nil || claimed[0].Omitted != (i == 1) ||
				(claimed[0].Run.Outcome.Output == completed.Output) != (i == 0) {
				h.Fatalf("got %+v of a run", claimed)
			}
			h.now += claimTime
		}
		h.must(h.delete(ended))
		claimed = h.claimDeliveries(executor, "c9", 9)
		if len(claimed) != 1 || claimed[0].ID != "run" || claimed[0].Run != nil || claimed[0].Session != nil {
			h.Errorf("got %+v after the deletion", claimed)
		}
	}},
	{"a deleted subscription and an erased tenant leave no deliveries", func(h *harness) {
		for _, id := range []string{"w1", "w2"} {
			h.subscribe("acme", session.Subscription{ID: id})
		}
		h.start(h.startOf(home))
		h.event(home, nil, "e")
		number, err := h.Store.AddDelivery(h.Context(), "acme", "w1", "test", h.eventOf("test"))
		h.must(err)
		_, err = h.Store.AddDelivery(h.Context(), "other", "w1", "test", h.eventOf("test"))
		h.refuses(err, fault.NotFound, "SUBSCRIPTION_NOT_FOUND")
		list, err := h.Store.Deliveries(h.Context(), "acme", store.DeliveryQuery{SubscriptionID: "w1", Limit: 1})
		h.must(err)
		if len(list) != 1 || list[0].Number != number || list[0].ID != "test" {
			h.Errorf("got %+v, want delivery %d", list, number)
		}
		for _, want := range []bool{true, false} {
			known, err := h.Store.DeleteSubscription(h.Context(), "acme", "w1")
			h.must(err)
			same(h, "deleted", known, want)
		}
		same(h, "left", h.deliveryIDs("acme", store.DeliveryQuery{Limit: 9}), []string{"e"})
		h.must(h.Store.DropOutbox(h.Context(), "acme"))
		same(h, "left", h.deliveryIDs("acme", store.DeliveryQuery{Limit: 9}), []string(nil))
		all, err := h.Store.Subscriptions(h.Context(), "acme")
		h.must(err)
		same(h, "subscriptions", len(all), 0)
	}},
	{"two replicas claim each delivery once, in the order of its session", func(h *harness) {
		replicas := h.replicaPair()
		h.subscribe("acme", session.Subscription{ID: "w"})
		const sessions, events = 8, 5
		for i := range sessions {
			h.start(h.startOf(at(fmt.Sprint("s", i))))
			for n := range events {
				h.event(at(fmt.Sprint("s", i)), nil, fmt.Sprintf("%d-%d", i, n))
			}
		}
		got := make([][]string, parallelism)
		concurrently(func(i int) {
			for round := range sessions * events {
				claim := h.deliveryClaim(executor, fmt.Sprint("c", i, "-", round), 9, 9)
				claimed, _, err := replicas[i%2].ClaimDeliveries(h.Context(), claim)
				if err != nil {
					h.Errorf("claim: %v", err)
					return
				}
				refs := make([]store.DeliveryRef, len(claimed))
				for n, d := range claimed {
					refs[n] = store.DeliveryRef{Tenant: d.Tenant, Number: d.Number, ClaimID: claim.ClaimID}
					got[i] = append(got[i], fmt.Sprintf("%06d %s", d.Number, d.ID))
				}
				accept := func(d *session.Delivery) { d.Delivered(retries, h.now) }
				if n, err := replicas[i%2].UpdateDeliveries(h.Context(), refs, h.now, accept); err != nil || n != len(refs) {
					h.Errorf("report: %d of %d, %v", n, len(refs), err)
				}
			}
		})
		all := slices.Sorted(slices.Values(slices.Concat(got...)))
		if len(all) != sessions*events || len(slices.Compact(all)) != sessions*events {
			h.Errorf("got %d deliveries, want %d, each once", len(all), sessions*events)
		}
	}},
}

var errRefused = fault.New(fault.Conflict, "REFUSED", "a test refuses the change")

func (h *harness) subscribe(tenant string, s session.Subscription) {
	h.Helper()
	s.URL, s.Secrets = cmp.Or(s.URL, "https://receiver.example"), []string{"secret"}
	h.must(h.Store.PutSubscription(h.Context(), tenant, s, 99))
}

func (h *harness) eventOf(id string) session.Event {
	return session.Event{ID: id, Kind: "k", RootID: "root", RunID: "run", AgentType: agent, At: h.now, Facts: `{"a":1}`}
}

// tell writes events with a change of the session; with a failure it writes nothing.
func (h *harness) tell(key session.Key, failure error, events ...session.Event) error {
	err := h.Store.Update(h.Context(), []session.Target{{Key: key}}, weight, func(views []*session.View) ([]*session.Change, error) {
		s := *views[0].Session
		s.Version++
		return []*session.Change{{Session: &s, Events: events}}, failure
	})
	if failure != nil && err != nil {
		return nil
	}
	return err
}

// event tells events with these ids. The last one may be a kind.
func (h *harness) event(key session.Key, failure error, ids ...string) {
	h.Helper()
	kind := session.EventKind("k")
	if last := ids[len(ids)-1]; len(ids) > 1 && (last == "busy" || last == "calm") {
		kind, ids = session.EventKind(last), ids[:len(ids)-1]
	}
	var events []session.Event
	for _, id := range ids {
		e := h.eventOf(id)
		e.Kind = kind
		events = append(events, e)
	}
	h.must(h.tell(key, failure, events...))
}

func (h *harness) deliveryIDs(tenant string, q store.DeliveryQuery) (ids []string) {
	h.Helper()
	list, err := h.Store.Deliveries(h.Context(), tenant, q)
	h.must(err)
	for _, d := range list {
		ids = append(ids, d.ID)
	}
	return ids
}

func (h *harness) deliveryClaim(executorID, claimID string, limit, maxBytes int) store.DeliveryClaim {
	return store.DeliveryClaim{
		ExecutorID: executorID, ClaimID: claimID, Now: h.now, Until: h.now + claimTime, Each: 3, Limit: limit, MaxBytes: maxBytes,
	}
}

func (h *harness) claimDeliveries(executorID, claimID string, limit int) []store.ClaimedDelivery {
	h.Helper()
	claimed, idle, err := h.Store.ClaimDeliveries(h.Context(), h.deliveryClaim(executorID, claimID, limit, 1000))
	h.must(err)
	same(h, "idle", idle, false)
	return claimed
}

// expectClaim claims deliveries, and compares the ids of their events in the order of their numbers.
func (h *harness) expectClaim(claimID, want string, limit ...int) {
	h.Helper()
	var got []string
	for _, d := range h.claimDeliveries(executor, claimID, append(limit, 9)[0]) {
		got = append(got, d.ID)
	}
	slices.Sort(got)
	same(h, "claim "+claimID, got, strings.Fields(want))
}

// report decides on the deliveries of a claim, however many there were.
func (h *harness) report(claimID string, want int, decide func(*session.Delivery)) {
	h.Helper()
	var refs []store.DeliveryRef
	for _, tenant := range []string{"acme", "other"} {
		list, err := h.Store.Deliveries(h.Context(), tenant, store.DeliveryQuery{Limit: 99})
		h.must(err)
		for _, d := range list {
			refs = append(refs, store.DeliveryRef{Tenant: tenant, Number: d.Number, ClaimID: claimID})
		}
	}
	n, err := h.Store.UpdateDeliveries(h.Context(), refs, h.now, decide)
	h.must(err)
	same(h, "reported of "+claimID, n, want)
}

func (h *harness) replay(id string, number, want int64) {
	h.Helper()
	n, err := h.Store.Replay(h.Context(), "acme", id, number, h.now)
	h.must(err)
	same(h, "replayed", n, want)
}
