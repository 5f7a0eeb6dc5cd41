package faults_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// readings are the readers of a test and their results.
type readings struct {
	t *testing.T

	mu  sync.Mutex
	all []*reading

	// Used by the checks only.
	seen   map[place]string
	failed int
}

// failuresShown is how many failures of readers are printed in full.
const failuresShown = 5

// place is the position of a chunk. No other chunk may ever have it.
type place struct{ session, sequence string }

// reading is one reader and its expected final content.
type reading struct {
	*harness.Reader
	who  string
	want string
	done chan struct{}
	err  error // set when done
}

func newReadings(t *testing.T) *readings { return &readings{t: t, seen: map[place]string{}} }

// begin starts a reader that must receive the text.
func (r *readings) begin(ctx context.Context, who string, reader *harness.Reader, want string) *reading {
	one := &reading{Reader: reader, who: who}
	r.mu.Lock()
	r.all = append(r.all, one)
	r.mu.Unlock()
	one.begin(ctx, want)
	return one
}

// follow starts a reader for each session.
func (r *readings) follow(ctx context.Context, c harness.Client, who string, sessions []*session) (begun []*reading) {
	for _, s := range sessions {
		begun = append(begun, r.begin(ctx, who, &harness.Reader{Client: c, Session: s.id}, s.text()))
	}
	return begun
}

// begin resumes the reader at its position.
func (o *reading) begin(ctx context.Context, want string) {
	o.want, o.done = want, make(chan struct{})
	go func() { // ends with ctx; check waits for it
		defer close(o.done)
		o.err = o.Read(ctx)
	}()
}

// wait waits for the end of the readers.
func wait(readers []*reading) {
	for _, one := range readers {
		<-one.done
	}
}

// check waits for all readers and checks their content.
func (r *readings) check() {
	r.t.Helper()
	wait(r.all)
	for _, one := range r.all {
		if r.checkEnd(one) && one.Text() != one.want {
			r.fail("%s of %s holds another text:\n%s\n%s", one.who, one.Session, compare(one.Text(), one.want), one.Dump())
		}
	}
}

// fail is Errorf, in full for the first failures only.
func (r *readings) fail(format string, args ...any) {
	r.t.Helper()
	if r.failed++; r.failed > failuresShown {
		r.t.Errorf("failure %d of readers", r.failed)
		return
	}
	r.t.Errorf(format, args...)
}

func (r *readings) checkEnd(one *reading) (ended bool) {
	r.t.Helper()
	if one.err != nil {
		r.fail("%s: %v", one.who, one.err)
		return false
	}
	if one.Content.End != "end" || !strings.Contains(one.Content.EndData, `"completed"`) {
		r.fail("%s of %s ends with %s %s, want that the run is completed", one.who, one.Session, one.Content.End, one.Content.EndData)
	}
	r.checkPlaces(one)
	return true
}

// checkPlaces compares the reader with all others: a sequence identifies one chunk for every reader, at any time
// and on any transport.
func (r *readings) checkPlaces(one *reading) {
	r.t.Helper()
	for _, e := range one.Frames {
		if e.Name != "chunk" {
			continue
		}
		at, text := place{one.Session, e.ID}, chunkOf(r.t, e)
		if other, ok := r.seen[at]; ok && other != text {
			r.fail("sequence %s of %s is\n%s\nand\n%s", at.sequence, at.session, other, text)
		}
		r.seen[at] = text
	}
}

// count adds up a figure over the readers.
func count(readers []*reading, of func(*reading) int) (n int) {
	for _, one := range readers {
		n += of(one)
	}
	return n
}

func reloads(one *reading) int { return one.Reloads }

// countFrames counts the reader's frames of a name.
func countFrames(name string) func(*reading) int {
	return func(one *reading) (n int) {
		for _, e := range one.Frames {
			if e.Name == name {
				n++
			}
		}
		return n
	}
}

// differ returns the first byte at which two texts differ.
func differ(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// compare shows two texts around their first difference.
func compare(got, want string) string {
	const before, behind = 60, 200
	show := func(text string) string {
		at := differ(got, want)
		return fmt.Sprintf("%q (%d bytes)", text[max(0, at-before):min(len(text), at+behind)], len(text))
	}
	return "got  … " + show(got) + "\nwant … " + show(want)
}
