package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const cutLimit = 8 * time.Minute

func TestAFinishedRunIsWholeFromWhereverAReaderWasCut(t *testing.T) {
	t.Parallel()
	model := newPacer(t, nil)
	s := harness.Start(t, harness.Options{Agents: model.agents()})
	const session = "cut/me *.> ✂"
	answer := s.Chat(t, session, "long", "go")
	model.watch(t, s, session)
	answer.ReadAll()
	s.WaitStatus(t, session, "completed")

	for name, wire := range wires(t, s, session) {
		t.Run("by "+name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), cutLimit)
			defer cancel()
			whole := mustRead(ctx, t, wire, 0, 0, func() {})
			if n := len(whole.frames); n < minStored {
				t.Fatalf("the finished run has %d frames, want %d or more\n%s", n, minStored, show(whole.frames))
			}
			for i := range whole.frames {
				checkJoined(t, i, cutAt(ctx, t, wire, i, func() {}), whole)
			}
			checkJoined(t, -1, cutEverywhere(ctx, t, wire), whole)
		})
	}
	t.Run("by SSE in the middle of an event", func(t *testing.T) {
		t.Parallel()
		checkHalfEvents(t, s, session)
	})
	t.Run("by pages of every size", func(t *testing.T) {
		t.Parallel()
		checkPages(t, s, session)
	})
	t.Run("by a snapshot", func(t *testing.T) {
		t.Parallel()
		joined, _ := snapshotAndRest(t, s.Client, session, func() {})
		stored := s.Messages(t, session)
		checkContent(t, "the snapshot and the rest", joined, stored[len(stored)-1].Content())
	})
}

func TestALiveRunIsWholeFromWhereverAReaderWasCut(t *testing.T) {
	t.Parallel()
	const session, ways = "live", 5
	// The run waits until a cut reader has reconnected.
	model := newPacer(t, func(frames, back int) bool { return back >= ways*min(frames+1, maxFrames) })
	s := harness.Start(t, harness.Options{Agents: model.agents()})
	s.Chat(t, session, "long", "go").Close()
	ctx, cancel := context.WithTimeout(t.Context(), cutLimit)
	defer cancel()

	all := wires(t, s, session)
	if len(all) != ways {
		t.Fatalf("there are %d ways to read, want %d", len(all), ways)
	}
	model.watch(t, s, session)
	results := map[string]*[maxFrames]transcript{}
	everywhere := map[string]*transcript{}
	var readers sync.WaitGroup
	for name, wire := range all {
		cuts, stepwise := new([maxFrames]transcript), new(transcript)
		results[name], everywhere[name] = cuts, stepwise
		for i := range cuts {
			readers.Go(func() { cuts[i] = cutAt(ctx, t, wire, i, model.readerReturned) })
		}
		readers.Go(func() { *stepwise = cutEverywhere(ctx, t, wire) })
	}
	readers.Wait()
	s.WaitStatus(t, session, "completed")
	for name, wire := range all {
		t.Run("by "+name, func(t *testing.T) {
			whole := mustRead(ctx, t, wire, 0, 0, func() {})
			checkLength(t, *everywhere[name])
			live := 0
			for i, joined := range results[name] {
				checkSameContent(t, i, joined, whole)
				if joined.live {
					live++
				}
			}
			if live < minFrames/2 {
				t.Errorf("%d readers came back while the run was at work, want %d or more: the test proves nothing", live, minFrames/2)
			}
			checkSameContent(t, -1, *everywhere[name], whole)
		})
	}
}

func TestASnapshotOfALiveRunAndTheRestAreTheWhole(t *testing.T) {
	t.Parallel()
	// The run waits for the snapshot of its output so far.
	model := newPacer(t, func(frames, back int) bool { return back >= frames })
	s := harness.Start(t, harness.Options{Agents: model.agents()})
	const session = "live"
	s.Chat(t, session, "long", "go").Close()

	var mu sync.Mutex
	var joined []harness.UIMessage
	var live atomic.Int32
	var readers sync.WaitGroup
	model.watch(t, s, session)
	watching := s.Native(t, session, 0)
	for {
		readers.Go(func() {
			m, more := snapshotAndRest(t, s.Client, session, model.readerReturned)
			mu.Lock()
			defer mu.Unlock()
			joined = append(joined, m)
			if more {
				live.Add(1)
			}
		})
		if err := watching.Next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	readers.Wait()
	if got := int(live.Load()); got < minFrames/2 {
		t.Errorf("%d snapshots were taken while the run was at work, want %d or more: the test proves nothing", got, minFrames/2)
	}
	s.WaitStatus(t, session, "completed")
	stored := s.Messages(t, session)
	for i, m := range joined {
		checkContent(t, fmt.Sprintf("snapshot %d and the rest", i), m, stored[len(stored)-1].Content())
	}
}

// transcript holds the frames of a reader over all its connections.
type transcript struct {
	frames []frame // without marks
	live   bool    // a frame other than the terminal one followed caught-up on the last connection
}

func (r transcript) bytes() string {
	var b strings.Builder
	for _, f := range r.frames {
		b.WriteString(f.bytes)
	}
	return b.String()
}

func (r transcript) cursor() int64 {
	var cursor int64
	for _, f := range r.frames {
		switch {
		case f.rewound:
			cursor = f.at
		case f.sequence > 0:
			cursor = f.sequence
		}
	}
	return cursor
}

// read reads limit frames, or up to the terminal frame if limit is 0, and disconnects.
func read(ctx context.Context, open wire, after int64, limit int, listens func()) (transcript, error) {
	c, err := open(ctx, after)
	if err != nil {
		return transcript{}, err
	}
	defer c.close()
	var r transcript
	caughtUp := false
	for limit == 0 || len(r.frames) < limit {
		f, err := c.next()
		switch {
		case err != nil:
			return r, fmt.Errorf("%w after %d frames without a terminal one", err, len(r.frames))
		case f.mark && caughtUp:
			return r, errors.New("it has caught up twice")
		case f.mark:
			caughtUp = true
			listens()
			continue
		}
		r.frames = append(r.frames, f)
		if f.terminal {
			if f, err := c.next(); !errors.Is(err, io.EOF) {
				return r, fmt.Errorf("behind the terminal frame came %v (%w), want a clean end", f, err)
			}
			return r, nil
		}
		r.live = caughtUp
	}
	return r, nil
}

func mustRead(ctx context.Context, t *testing.T, open wire, after int64, limit int, listens func()) transcript {
	t.Helper()
	r, err := read(ctx, open, after, limit, listens)
	if err != nil {
		t.Errorf("after %d: %v\n%s", after, err, show(r.frames))
	}
	return r
}

// cutAt reads n frames, disconnects, and reads the rest through another connection. It calls back once that has
// caught up.
func cutAt(ctx context.Context, t *testing.T, open wire, n int, back func()) transcript {
	t.Helper()
	var head transcript
	if n > 0 {
		head = mustRead(ctx, t, open, 0, n, func() {})
	}
	if last := len(head.frames) - 1; last >= 0 && head.frames[last].terminal {
		return head // nothing left to cut
	}
	tail := mustRead(ctx, t, open, head.cursor(), 0, back)
	return transcript{slices.Concat(head.frames, tail.frames), tail.live}
}

// cutEverywhere reads one frame per connection.
func cutEverywhere(ctx context.Context, t *testing.T, open wire) transcript {
	t.Helper()
	var all transcript
	for {
		next := mustRead(ctx, t, open, all.cursor(), 1, func() {})
		all.frames = append(all.frames, next.frames...)
		if len(next.frames) == 0 || next.frames[0].terminal {
			return all
		}
	}
}

// checkLength verifies that the transcript is long enough for meaningful cuts and complete.
func checkLength(t *testing.T, whole transcript) {
	t.Helper()
	if n := len(whole.frames); n < minFrames || n > maxFrames {
		t.Fatalf("the run has %d frames, want %d to %d\n%s", n, minFrames, maxFrames, show(whole.frames))
	}
}

func checkJoined(t *testing.T, cut int, joined, whole transcript) {
	t.Helper()
	if joined.bytes() != whole.bytes() {
		t.Errorf("cut after %d frames (-1: after each), the stream is\n%swant, as it is uncut,\n%s", cut, show(joined.frames), show(whole.frames))
	}
}

// checkSameContent compares the final content of two readers. The same step has different chunks live and from
// the database.
func checkSameContent(t *testing.T, cut int, joined, whole transcript) {
	t.Helper()
	if got, want := joined.content(t), whole.content(t); got != want {
		t.Errorf("cut after %d frames (-1: after each), the reader holds\n%swant\n%s\nof the frames\n%s", cut, got, want, show(joined.frames))
	}
}

// content returns a reader's final content without sequences.
func (r transcript) content(t *testing.T) string {
	t.Helper()
	var held harness.NativeStream
	for _, f := range r.frames {
		switch {
		case f.rewound:
			held.Chunks = slices.DeleteFunc(held.Chunks, func(c harness.NativeChunk) bool { return c.Sequence > f.at })
		case f.chunk != nil:
			var c harness.NativeChunk
			if err := json.Unmarshal(f.chunk, &c); err != nil {
				t.Fatal(err)
			}
			c.Sequence = f.sequence
			held.Chunks = append(held.Chunks, c)
		case f.terminal:
			held.End = f.end
		}
	}
	return held.Content()
}

func show(frames []frame) string {
	var b strings.Builder
	for _, f := range frames {
		fmt.Fprintf(&b, "  %v\n", f)
	}
	return b.String()
}

// halfEvent is the distance between two cuts inside events. It is odd, so the cuts hit every offset.
const halfEvent = 41

// checkHalfEvents cuts the body between any two bytes. The reader drops the partial event and resumes after the
// last whole one.
func checkHalfEvents(t *testing.T, s *harness.System, session string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cutLimit)
	defer cancel()
	body, err := s.Body(ctx, session, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	whole, _ := events(t, body)
	for at := int64(1); at < int64(len(body)); at += halfEvent {
		head, err := s.Body(ctx, session, 0, at)
		if err != nil {
			t.Fatalf("the first %d bytes: %v", at, err)
		}
		before, cursor := events(t, head)
		if strings.Contains(before, "event: end") {
			break // the rest is the end of the body
		}
		tail, err := s.Body(ctx, session, cursor, 0)
		if err != nil {
			t.Fatalf("behind %d: %v", cursor, err)
		}
		after, _ := events(t, tail)
		if joined := before + after; joined != whole {
			t.Fatalf("cut after %d bytes, the body is\n%swant, as it is uncut,\n%s", at, joined, whole)
		}
	}
}

// events returns the bytes of the whole events in a body, without comments and caught-up, and the last id.
func events(t *testing.T, body []byte) (text string, cursor int64) {
	t.Helper()
	var b strings.Builder
	for {
		event, rest, whole := bytes.Cut(body, []byte("\n\n"))
		if !whole {
			return b.String(), cursor
		}
		body = rest
		if bytes.HasPrefix(event, []byte(":")) || bytes.Contains(event, []byte("event: caught-up\n")) {
			continue
		}
		b.Write(event)
		b.WriteString("\n\n")
		if id, named := bytes.CutPrefix(event, []byte("id: ")); named {
			id, _, _ = bytes.Cut(id, []byte("\n"))
			var err error
			if cursor, err = strconv.ParseInt(string(id), 10, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// checkPages reads the stored chunks in pages of every size and from every position.
func checkPages(t *testing.T, s *harness.System, session string) {
	t.Helper()
	native := s.Native(t, session, 0)
	native.ReadAll()
	all := s.History(t, session, 0, 1000)
	if all.HasMore || len(all.Chunks) != len(native.Chunks) {
		t.Fatalf("the history has %d chunks (more: %v), the stream %d", len(all.Chunks), all.HasMore, len(native.Chunks))
	}
	for i, c := range all.Chunks {
		if c.Sequence != native.Chunks[i].Sequence || !native.Holds(string(c.Chunk)) {
			t.Errorf("chunk %d of the history is %d %s, want that of the stream, %v", i, c.Sequence, c.Chunk, native.Chunks[i])
		}
	}
	for limit := 1; limit <= len(all.Chunks)+1; limit++ {
		for _, skip := range []int{0, limit / 2} {
			var after int64
			if skip > 0 {
				after = all.Chunks[skip-1].Sequence
			}
			checkPagesOf(t, s, session, limit, after, all.Chunks[skip:])
		}
	}
}

func checkPagesOf[C any](t *testing.T, s *harness.System, session string, limit int, after int64, want []C) {
	t.Helper()
	var got []string
	for {
		page := s.History(t, session, after, limit)
		if len(page.Chunks) > limit || (page.HasMore && len(page.Chunks) == 0) {
			t.Fatalf("a page of %d after %d has %d chunks (more: %v)", limit, after, len(page.Chunks), page.HasMore)
		}
		for _, c := range page.Chunks {
			after = c.Sequence
			got = append(got, fmt.Sprint(c))
		}
		if !page.HasMore {
			break
		}
	}
	var wanted []string
	for _, c := range want {
		wanted = append(wanted, fmt.Sprint(c))
	}
	if !slices.Equal(got, wanted) {
		t.Errorf("the pages of %d after %d are\n%q\nwant\n%q", limit, after, got, wanted)
	}
}

// snapshotAndRest assembles the answer from a snapshot and the stream after it. more reports whether that stream
// had chunks. It calls listens once, before it reads the stream.
func snapshotAndRest(t *testing.T, c harness.Client, session string, listens func()) (answer harness.UIMessage, more bool) {
	t.Helper()
	snapshot, err := c.Snapshot(t.Context(), session)
	if err != nil {
		t.Error(err)
		return answer, false
	}
	if n := len(snapshot.Messages); n > 0 && snapshot.Messages[n-1].Role == "assistant" {
		answer = snapshot.Messages[n-1]
	}
	rest := c.Native(t, session, snapshot.StreamSequence)
	listens()
	rest.ReadAll()
	if rest.Rewinds > 0 && rest.RewoundAt < snapshot.StreamSequence { // the step was committed since: a client takes a new snapshot
		return snapshotAndRest(t, c, session, func() {})
	}
	for _, chunk := range rest.Chunks {
		answer.Apply(chunk)
	}
	return answer, len(rest.Chunks) > 0
}
