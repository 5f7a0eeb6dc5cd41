package bustest

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// ahead is how far above a log the sequence is that a test claims to know.
const ahead = 1000

// runRenew runs one test after the other: a renewal takes all that its partition
// has.
func runRenew(t *testing.T, open Opener) {
	log := open(t, Options{})
	t.Run("AnUnfoundedDoubtRemovesNothing", func(t *testing.T) { doubtWithoutReason(t, log) })
	t.Run("WhatRetentionHasTakenIsNotLost", func(t *testing.T) { doubtRetention(t, open(t, Options{})) })
	t.Run("AFoundedDoubtBeginsThePartitionAnew", func(t *testing.T) { renewOnce(t, log) })
	t.Run("ARenewalIsRepeatedOnlyForAnotherLoss", func(t *testing.T) {
		s := family(t)
		before := appendOne(t, log, s, chunk(1)).Sequence
		for range 3 {
			known := infoOf(t, log, s).Top + ahead
			if !mustRenew(t, log, s, known) {
				t.Fatalf("%d is not known to the log, and it was not begun anew", known)
			}
			if mustRenew(t, log, s, known) || mustRenew(t, log, s, before) {
				t.Fatal("what was known of the lost log began the new one anew")
			}
		}
	})
	t.Run("ManyCallersAtOnceAgree", func(t *testing.T) {
		s := family(t)
		appendMany(t, log, s, 2)
		renewAtOnce(t, []bus.Bus{log, log, log, log}, s, infoOf(t, log, s).Top+ahead)
	})
	t.Run("WritersGoOnThroughARenewal", func(t *testing.T) { writeThrough(t, log) })
	t.Run("EveryLegalIdMayDoubt", func(t *testing.T) {
		for _, id := range hostile {
			s := bus.Stream{Tenant: id, Root: id, Session: id}
			r := appendOne(t, log, s, chunk(1))
			if mustRenew(t, log, s, r.Sequence) {
				t.Fatalf("%q: the log has the record and was begun anew", id)
			}
			if !mustRenew(t, log, s, r.Sequence+ahead) {
				t.Fatalf("%q: the log has not the record and was not begun anew", id)
			}
			mustBeEmpty(t, log, s)
		}
	})
}

func mustRenew(t *testing.T, log bus.Bus, s bus.Stream, known uint64) bool {
	t.Helper()
	renewed, err := log.Renew(t.Context(), s, known)
	if err != nil {
		t.Fatalf("renew, knowing %d: %v", known, err)
	}
	return renewed
}

func doubtWithoutReason(t *testing.T, log bus.Bus) {
	s := family(t)
	empty := child(s, "empty")
	records := appendMany(t, log, s, 4)
	before := infoOf(t, log, s)
	for _, known := range []uint64{records[3].Sequence, records[1].Sequence, before.Began, before.Began - 1, 1, 0} {
		if mustRenew(t, log, s, known) {
			t.Fatalf("%d is there, or of a former log, and the log was begun anew", known)
		}
	}
	// No log can have given these, whatever somebody says.
	for _, known := range []uint64{9e15, math.MaxInt64, math.MaxUint64} {
		for _, stream := range []bus.Stream{s, empty} {
			if mustRenew(t, log, stream, known) {
				t.Fatalf("%d is not credible, and the log was begun anew", known)
			}
		}
	}
	same(t, history(t, log, only(s), 0), records)
	if after := infoOf(t, log, s); after.Began != before.Began {
		t.Errorf("got a log that began at %d, want %d as before", after.Began, before.Began)
	}
}

// doubtRetention removes the first records of a log, as retention does.
func doubtRetention(t *testing.T, log bus.Bus) {
	s := family(t)
	gone := appendMany(t, log, s, 3)
	stays := appendOne(t, log, child(s, "later"), chunk(1))
	purge(t, log, s, gone[2].Sequence+1)
	for _, r := range gone {
		if mustRenew(t, log, s, r.Sequence) {
			t.Fatalf("%d is below the floor, and the log was begun anew", r.Sequence)
		}
	}
	same(t, history(t, log, whole(s), 0), []*chunklog.Record{stays})
}

func renewOnce(t *testing.T, log bus.Bus) {
	s := family(t)
	sibling := child(s, "sibling")
	live, tree := newSink(), newSink()
	defer log.Follow(only(s), live)()
	defer log.Follow(whole(s), tree)()
	appendMany(t, log, s, 3)
	appendMany(t, log, sibling, 2)
	tree.wait(t, 0, 5)
	known := infoOf(t, log, s).Top + ahead
	if !mustRenew(t, log, s, known) {
		t.Fatalf("%d is not known to the log, and it was not begun anew", known)
	}
	live.gapped(t)
	tree.gapped(t)
	mustBeEmpty(t, log, s)
	mustBeEmpty(t, log, sibling)
	same(t, history(t, log, whole(s), 0), nil)
	info := infoOf(t, log, s)
	if info.Began <= known || info.Floor != info.Began-1 || info.Top < info.Floor {
		t.Fatalf("got %+v, want a log that began above %d", info, known)
	}
	if _, err := log.Append(t.Context(), s, known, chunk(4)); err == nil {
		t.Error("a record was stored behind one that is gone")
	}
	anew := chunk(1)
	anew.Kind, anew.Anew = chunklog.Marker, true
	next := appendOne(t, log, s, anew)
	if next.Sequence < info.Began {
		t.Errorf("got sequence %d in a log that began at %d", next.Sequence, info.Began)
	}
	after := appendOne(t, log, sibling, chunk(1))
	want := []*chunklog.Record{next, after}
	same(t, history(t, log, whole(s), 0), want)
	same(t, tree.wait(t, known, 2), want)
	if again := infoOf(t, log, s); again.Began != info.Began || again.Last != next.Sequence || again.Top < after.Sequence {
		t.Errorf("got %+v, want the log that began at %d", again, info.Began)
	}
}

// renewAtOnce has each of the logs, which are one, renewed for one loss.
func renewAtOnce(t *testing.T, logs []bus.Bus, s bus.Stream, known uint64) {
	t.Helper()
	sinks := make([]*sink, len(logs))
	for i, log := range logs {
		sinks[i] = newSink()
		defer log.Follow(whole(s), sinks[i])()
	}
	renewed, errs := make([]bool, len(logs)), make([]error, len(logs))
	var group sync.WaitGroup
	for i, log := range logs {
		group.Go(func() { renewed[i], errs[i] = log.Renew(t.Context(), s, known) })
	}
	group.Wait()
	begun := false
	began := infoOf(t, logs[0], s).Began
	for i, log := range logs {
		begun = begun || renewed[i]
		if errs[i] != nil {
			t.Fatalf("caller %d: %v", i, errs[i])
		}
		if info := infoOf(t, log, s); info.Began != began || began <= known || info.Count != 0 {
			t.Fatalf("caller %d: got %+v, want an empty log that began at %d, above %d", i, info, began, known)
		}
		sinks[i].gapped(t)
	}
	if !begun {
		t.Errorf("nobody was told that the log was begun anew")
	}
	next := appendOne(t, logs[0], s, chunk(1))
	for i, log := range logs {
		same(t, history(t, log, whole(s), 0), []*chunklog.Record{next})
		same(t, sinks[i].wait(t, known, 1), []*chunklog.Record{next})
	}
}

// writeThrough begins a log anew while sessions write, each behind what it takes
// for its last record. What was acknowledged by the new log is what it has.
func writeThrough(t *testing.T, log bus.Bus) {
	const sessions, each = 3, 40
	s := family(t)
	live := newSink()
	defer log.Follow(whole(s), live)()
	acknowledged := make([]map[uint64]string, sessions)
	var group sync.WaitGroup
	for i := range acknowledged {
		acknowledged[i] = map[uint64]string{}
		group.Go(func() {
			session := child(s, fmt.Sprint("session ", i))
			for number := range each {
				payload := fmt.Sprintf("%s, number %d", session.Session, number)
				sequence, err := appendContended(t, log, session, payload)
				if err != nil {
					t.Error(err)
					return
				}
				acknowledged[i][sequence] = payload
			}
		})
	}
	live.wait(t, 0, sessions*each/3)
	known := infoOf(t, log, s).Top + ahead*ahead
	if !mustRenew(t, log, s, known) {
		t.Fatalf("%d is not known to the log, and it was not begun anew", known)
	}
	group.Wait()
	records := history(t, log, whole(s), 0)
	count := 0
	for _, written := range acknowledged {
		for sequence := range written {
			if sequence > known {
				count++
			}
		}
	}
	if count != len(records) {
		t.Fatalf("got %d records in the new log, want the %d that it acknowledged", len(records), count)
	}
	for _, r := range records {
		session := int(r.Session[len(r.Session)-1] - '0')
		if r.Sequence <= known || acknowledged[session][r.Sequence] != string(r.Payload) {
			t.Fatalf("record %d of the new log holds %q, want %q", r.Sequence, r.Payload, acknowledged[session][r.Sequence])
		}
	}
	same(t, live.wait(t, known, len(records)), records)
}
