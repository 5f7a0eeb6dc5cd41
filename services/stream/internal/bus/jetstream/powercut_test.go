package jetstream_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/bustest"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/jetstream"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
	"github.com/holdfast-run/holdfast/services/stream/internal/natstest"
)

// copyOf copies a data directory as a crash leaves it: while it is in use. A file
// that goes meanwhile is not in the copy.
func copyOf(t *testing.T, directory string) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir(directory, func(name string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = copyEntry(filepath.Join(to, strings.TrimPrefix(name, directory)), name, entry)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func copyEntry(to, name string, entry fs.DirEntry) error {
	if entry.IsDir() {
		return os.MkdirAll(to, 0o700)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}

// inProcess is an embedded log whose data directory is put back to older copies.
type inProcess struct {
	owner  *testing.T
	server *jetstream.Server
	at     string
	noted  string
}

func newInProcess(t *testing.T) *inProcess {
	l := &inProcess{owner: t, at: t.TempDir()}
	l.server = embedded(t, l.at)
	return l
}

func (l *inProcess) Open(t *testing.T) bus.Bus {
	t.Helper()
	return open(t, l.server.Endpoint(), options())
}

func (l *inProcess) Snapshot(*testing.T) { l.noted = copyOf(l.owner, l.at) }

func (l *inProcess) Restore(*testing.T) {
	l.server.Close()
	l.at = l.noted
	l.server = embedded(l.owner, l.at)
}

func TestAnEmbeddedLogMayLoseItsEnd(t *testing.T) {
	t.Parallel()
	bustest.PowerCut(t, newInProcess(t))
}

// overWire is a NATS server with an address, whose data directory is put back to
// older copies.
type overWire struct {
	owner  *testing.T
	server *natstest.Solo
	at     string
	noted  string
}

func newOverWire(t *testing.T) *overWire {
	l := &overWire{owner: t, at: t.TempDir()}
	l.server = natstest.StartSolo(t, l.at)
	return l
}

func (l *overWire) endpoint() jetstream.Endpoint {
	return jetstream.Endpoint{URL: l.server.URL()}
}

func (l *overWire) Open(t *testing.T) bus.Bus {
	t.Helper()
	return open(t, l.endpoint(), options())
}

func (l *overWire) Snapshot(*testing.T) { l.noted = copyOf(l.owner, l.at) }

func (l *overWire) Restore(*testing.T) {
	l.server.Stop()
	l.at = l.noted
	l.server.Start(l.owner, l.at)
}

func TestALogOnAServerMayLoseItsEnd(t *testing.T) {
	t.Parallel()
	bustest.PowerCut(t, newOverWire(t))
}

// infoOf asks until the log answers, as a client does.
func infoOf(t *testing.T, log bus.Bus, s bus.Stream) bus.Info {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		info, err := log.Info(t.Context(), s)
		if err == nil {
			return info
		}
		if !errors.Is(err, fault.Unavailable) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestALogThatHasLessThanWasHeardIsBegunAnewByItself(t *testing.T) {
	t.Parallel()
	l := newOverWire(t)
	log := l.Open(t)
	live := newWatch()
	defer log.Follow(bus.Scope{Stream: outage}, live)()
	first := persist(t, log, outage, 0, 1)
	l.Snapshot(t)
	last := persist(t, log, outage, persist(t, log, outage, first, 2), 3)
	live.await(t, "the last record", func(seen []uint64, _ int) bool { return len(seen) == 3 })

	l.Restore(t)
	live.await(t, "a gap", func(_ []uint64, gaps int) bool { return gaps > 0 })
	info := infoOf(t, log, outage)
	if info.Began <= last || info.Count != 0 {
		t.Fatalf("got %+v, want an empty log that began above %d", info, last)
	}
	if next := persist(t, log, outage, 0, 4); next != info.Began {
		t.Errorf("got sequence %d as the first of a log that began at %d", next, info.Began)
	}
}

func TestARenewalOutlivesTheServer(t *testing.T) {
	t.Parallel()
	l := newInProcess(t)
	log := l.Open(t)
	persist(t, log, outage, 0, 1)
	if renewed, err := log.Renew(t.Context(), outage, infoOf(t, log, outage).Top+7); !renewed || err != nil {
		t.Fatalf("got %v, %v; want a log begun anew", renewed, err)
	}
	began := infoOf(t, log, outage).Began
	for _, crash := range []func(){
		func() { l.server.Close(); l.server = embedded(t, l.at) },
		func() { l.Snapshot(t); l.Restore(t) }, // as it is when the process is killed
	} {
		crash()
		log = l.Open(t)
		if info := infoOf(t, log, outage); info.Began != began || info.Floor != began-1 || info.Top != began-1 {
			t.Fatalf("got %+v after a restart, want an empty log that began at %d", info, began)
		}
	}
	if next := persist(t, log, outage, 0, 1); next != began {
		t.Errorf("got sequence %d, want %d", next, began)
	}
}

func TestALogIsBegunAnewWhenItIsOpenedThatWay(t *testing.T) {
	t.Parallel()
	server := embedded(t, t.TempDir())
	roots := []bus.Stream{outage, {Tenant: "t", Root: "b", Session: "b"}, {Tenant: "t", Root: "c", Session: "c"}, {Tenant: "t", Root: "d", Session: "d"}}
	log := open(t, server.Endpoint(), options())
	known := map[bus.Stream]uint64{}
	for _, s := range roots {
		known[s] = persist(t, log, s, 0, 1)
	}
	o := options()
	o.Renew = true
	log = open(t, server.Endpoint(), o)
	began := map[bus.Stream]uint64{}
	for _, s := range roots {
		info := infoOf(t, log, s)
		if began[s] = info.Began; info.Began <= known[s] || info.Count != 0 {
			t.Errorf("%s: got %+v, want an empty log that began above %d", s.Root, info, known[s])
		}
	}
	log = open(t, server.Endpoint(), options())
	for _, s := range roots {
		if info := infoOf(t, log, s); info.Began != began[s] {
			t.Errorf("%s: got a log that began at %d, want %d: it was begun anew again", s.Root, info.Began, began[s])
		}
		persist(t, log, s, 0, 1)
	}
}

func TestAnEmptyLogIsBegunAnewToo(t *testing.T) {
	t.Parallel()
	server := embedded(t, t.TempDir())
	made := infoOf(t, open(t, server.Endpoint(), options()), outage)
	if made.Began == 0 || made.Floor != made.Began-1 || made.Top != made.Began-1 {
		t.Fatalf("got %+v of a log that was just made", made)
	}
	o := options()
	o.Renew = true
	if again := infoOf(t, open(t, server.Endpoint(), o), outage); again.Began <= made.Began {
		t.Errorf("got a log that began at %d, want it above %d: its end may have been all it had", again.Began, made.Began)
	}
}

func TestFollowersInEveryProcessHearOfARenewal(t *testing.T) {
	t.Parallel()
	server := embedded(t, t.TempDir())
	logs := []bus.Bus{open(t, server.Endpoint(), options()), open(t, server.Endpoint(), options()), open(t, server.Endpoint(), options())}
	quiet := bus.Stream{Tenant: outage.Tenant, Root: outage.Root, Session: "quiet"}
	lives := make([]*watch, len(logs))
	for i, log := range logs {
		lives[i] = newWatch()
		defer log.Follow(bus.Scope{Stream: quiet}, lives[i])()
	}
	last := persist(t, logs[0], outage, 0, 1)
	if renewed, err := logs[0].Renew(t.Context(), outage, last+5); !renewed || err != nil {
		t.Fatalf("got %v, %v; want a log begun anew", renewed, err)
	}
	// Nothing is written after it, so only the comparison shows it.
	for _, live := range lives {
		live.await(t, "a gap", func(_ []uint64, gaps int) bool { return gaps > 0 })
	}
}

func TestAChangedLimitDoesNotForgetWhereTheLogBegan(t *testing.T) {
	t.Parallel()
	server := embedded(t, t.TempDir())
	log := open(t, server.Endpoint(), options())
	if renewed, err := log.Renew(t.Context(), outage, infoOf(t, log, outage).Top+5); !renewed || err != nil {
		t.Fatalf("got %v, %v; want a log begun anew", renewed, err)
	}
	o := options()
	o.MaxAge, o.SessionRecords = 2*o.MaxAge, 7
	after := open(t, server.Endpoint(), o)
	if got, want := infoOf(t, after, outage).Began, infoOf(t, log, outage).Began; got != want {
		t.Errorf("got a log that began at %d, want %d", got, want)
	}
	var last uint64
	for number := range int64(9) {
		last = persist(t, after, outage, last, number+1)
	}
	if info := infoOf(t, after, outage); info.Count != 7 {
		t.Errorf("got %d records of a session, want 7", info.Count)
	}
}

func TestAMarkerOfANewLogIsStoredAsOne(t *testing.T) {
	t.Parallel()
	log := open(t, embedded(t, t.TempDir()).Endpoint(), options())
	for _, anew := range []bool{true, false} {
		last, err := log.Last(t.Context(), outage)
		if err != nil {
			t.Fatal(err)
		}
		r := &chunklog.Record{Epoch: 1, Number: 1, Run: "r", Kind: chunklog.Marker, Anew: anew, Prev: 77}
		var expected uint64
		if last != nil {
			expected = last.Sequence
		}
		if _, err := log.Append(t.Context(), outage, expected, r); err != nil {
			t.Fatal(err)
		}
		if last, err = log.Last(t.Context(), outage); err != nil || last.Anew != anew || last.Prev != 77 {
			t.Errorf("got %+v, %v; want anew %v and the predecessor 77", last, err, anew)
		}
	}
}
