package group

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// modelQueue is a simple model of the queue: all its commands in the order of arrival.
type modelQueue struct {
	commands []*modelCommand
}

type modelCommand struct {
	entry    *entry[int]
	keys     []session.Key
	inFlight bool
}

// ready returns the waiting commands that share no key with an earlier command.
func (p *modelQueue) ready() (ready []*entry[int]) {
	seen := map[session.Key]bool{}
	for _, c := range p.commands {
		first := !c.inFlight
		for _, key := range c.keys {
			first = first && !seen[key]
		}
		for _, key := range c.keys {
			seen[key] = true
		}
		if first {
			ready = append(ready, c.entry)
		}
	}
	return ready
}

func (p *modelQueue) find(e *entry[int]) *modelCommand {
	return p.commands[slices.IndexFunc(p.commands, func(c *modelCommand) bool { return c.entry == e })]
}

func (p *modelQueue) remove(e *entry[int]) {
	p.commands = slices.DeleteFunc(p.commands, func(c *modelCommand) bool { return c.entry == e })
}

func (p *modelQueue) inState(inFlight bool) (some []*entry[int]) {
	for _, c := range p.commands {
		if c.inFlight == inFlight {
			some = append(some, c.entry)
		}
	}
	return some
}

func TestTheQueueAgreesWithAModel(t *testing.T) {
	t.Parallel()
	keys := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) session.Key {
		return session.Key{Tenant: "t", SessionID: fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "key"))}
	}), 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		q, p := &queue[int]{lastOfKey: map[session.Key]*keyEntry[int]{}}, &modelQueue{}
		var blank []*entry[int] // reused
		pick := func(t *rapid.T, from []*entry[int]) *entry[int] {
			if len(from) == 0 {
				t.Skip("there is none")
			}
			return rapid.SampledFrom(from).Draw(t, "entry")
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				e := &entry[int]{}
				if len(blank) > 0 {
					e, blank = blank[0], blank[1:]
				}
				e.bytes = rapid.IntRange(0, 9).Draw(t, "bytes")
				locks := keys.Draw(t, "keys")
				q.add(e, locks)
				p.commands = append(p.commands, &modelCommand{entry: e, keys: locks})
			},
			"drop": func(t *rapid.T) {
				e := pick(t, p.inState(false))
				if !q.remove(e) {
					t.Fatal("a command that waits was not dropped")
				}
				p.remove(e)
				blank = append(blank, e)
			},
			"drop in flight": func(t *rapid.T) {
				if q.remove(pick(t, p.inState(true))) {
					t.Fatal("a command in flight was dropped")
				}
			},
			"take": func(t *rapid.T) {
				most, mostBytes := rapid.IntRange(1, 4).Draw(t, "most"), rapid.IntRange(1, 15).Draw(t, "most bytes")
				listed := listed(t, q)
				batch := q.take(nil, most, mostBytes)
				checkBatch(t, listed, batch, most, mostBytes)
				for _, e := range batch {
					p.find(e).inFlight = true
				}
			},
			"release": func(t *rapid.T) {
				e := pick(t, p.inState(true))
				q.release(e)
				p.remove(e)
				blank = append(blank, e)
			},
			"": func(t *rapid.T) { checkAgreement(t, q, p) },
		})
	})
}

// listed returns the ready entries. It checks both directions of the list.
func listed(t *rapid.T, q *queue[int]) (forth []*entry[int]) {
	var back []*entry[int]
	for e := q.firstReady; e != nil; e = e.next {
		forth = append(forth, e)
	}
	for e := q.lastReady; e != nil; e = e.prev {
		back = append(back, e)
	}
	slices.Reverse(back)
	if !slices.Equal(forth, back) {
		t.Fatalf("ready: %d forth and %d back differ", len(forth), len(back))
	}
	return forth
}

// checkBatch checks that the batch is the longest prefix of ready within the bounds.
func checkBatch(t *rapid.T, ready, batch []*entry[int], most, mostBytes int) {
	want, bytes := 0, 0
	for want < min(most, len(ready)) {
		if bytes += ready[want].bytes; want > 0 && bytes > mostBytes {
			break
		}
		want++
	}
	if !slices.Equal(batch, ready[:want]) {
		t.Fatalf("took %d of %d that were ready, want the first %d", len(batch), len(ready), want)
	}
}

func checkAgreement(t *rapid.T, q *queue[int], p *modelQueue) {
	got, want := listed(t, q), p.ready()
	for _, e := range want {
		if !slices.Contains(got, e) {
			t.Fatal("a command that is the first of its lines is not ready")
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d commands are ready, want %d", len(got), len(want))
	}
	length, bytes, keys := 0, 0, map[session.Key]bool{}
	for _, c := range p.commands {
		if !c.inFlight {
			length++
			bytes += c.entry.bytes
		}
		for _, key := range c.keys {
			keys[key] = true
		}
	}
	if q.length != length || q.bytes != bytes {
		t.Fatalf("%d commands of %d bytes wait, want %d of %d", q.length, q.bytes, length, bytes)
	}
	if len(q.lastOfKey) != len(keys) {
		t.Fatalf("%d lines are kept, want %d", len(q.lastOfKey), len(keys))
	}
	if len(p.inState(true)) == 0 && length > 0 && len(got) == 0 {
		t.Fatal("commands wait in a circle")
	}
}
