package worker

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// storedBytes serves files of the tenant acme, by id. A file without bytes is known and cannot be read.
type storedBytes struct {
	statev1.FileServiceClient

	files map[string][]byte
	reads atomic.Int32
	away  atomic.Int32 // how many of the next reads fail in the middle
}

func (s *storedBytes) describe(id string) *statev1.File {
	return &statev1.File{FileId: id, MediaType: "image/png", Size: max(int64(len(s.files[id])), 1)}
}

func (s *storedBytes) GetFiles(_ context.Context, r *statev1.GetFilesRequest, _ ...grpc.CallOption) (*statev1.GetFilesResponse, error) {
	out := &statev1.GetFilesResponse{}
	for _, id := range r.GetFileIds() {
		if _, known := s.files[id]; known && r.GetTenant() == "acme" {
			out.Files = append(out.Files, s.describe(id))
		}
	}
	return out, nil
}

func (s *storedBytes) ReadFile(_ context.Context, r *statev1.ReadFileRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[statev1.ReadFileResponse], error) {
	s.reads.Add(1)
	parts := []*statev1.ReadFileResponse{{Part: &statev1.ReadFileResponse_File{File: s.describe(r.GetFileId())}}}
	data := s.files[r.GetFileId()]
	for at := 0; at < len(data); at += 7 { // no multiple of three
		parts = append(parts, &statev1.ReadFileResponse{Part: &statev1.ReadFileResponse_Data{Data: data[at:min(at+7, len(data))]}})
	}
	end := io.EOF
	switch {
	case data == nil:
		end = fault.New(fault.NotFound, "BLOB_NOT_FOUND", "the bytes are missing")
	case s.away.Add(-1) >= 0:
		end = fault.New(fault.Unavailable, "STORE_UNAVAILABLE", "outage")
	}
	return &partStream{parts: parts, end: end}, nil
}

// partStream is an answer to ReadFile.
type partStream struct {
	grpc.ServerStreamingClient[statev1.ReadFileResponse]

	parts []*statev1.ReadFileResponse
	end   error
}

func (p *partStream) Recv() (*statev1.ReadFileResponse, error) {
	if len(p.parts) == 0 {
		return nil, p.end
	}
	next := p.parts[0]
	p.parts = p.parts[1:]
	return next, nil
}

func newLoader(files map[string][]byte, c Config) (*fileLoader, *storedBytes) {
	s := &storedBytes{files: files}
	c.CallTimeout = time.Minute
	return newFileLoader(c, s), s
}

// asked returns a question with stored files.
func asked(ids ...string) agent.Message {
	m := agent.Message{ID: "m-" + strings.Join(ids, ""), Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: "look"}}}
	for _, id := range ids {
		m.Parts = append(m.Parts, agent.File{MediaType: "image/claimed", URL: eventv1.FileURL(id), Filename: id + ".png"})
	}
	return m
}

// shown describes the files of messages: their bytes, or "note".
func shown(t *testing.T, messages []agent.Message) string {
	t.Helper()
	var all []string
	for _, m := range messages {
		for _, p := range m.Parts[1:] {
			f, ok := p.(agent.File)
			if !ok {
				all = append(all, "note")
				continue
			}
			data, _ := model.DecodeDataURL(f.URL)
			if f.MediaType != "image/png" || !strings.HasPrefix(f.URL, "data:image/png;base64,") {
				t.Errorf("got %.40s of the type %s", f.URL, f.MediaType)
			}
			all = append(all, string(data))
		}
	}
	return strings.Join(all, " ")
}

func codeOf(err error) string {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e.Code
	}
	return fmt.Sprint(err)
}

func TestAModelGetsTheBytesOfStoredFiles(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{"a": []byte("photo of a cat"), "b": []byte("b"), "c": bytes.Repeat([]byte("c"), 100), "lost": nil}
	for name, tc := range map[string]struct {
		most     int64
		messages []agent.Message
		want     string
		code     string
	}{
		"files":                       {1000, []agent.Message{asked("a"), asked("b", "a")}, "photo of a cat b photo of a cat", ""},
		"an old file is gone":         {1000, []agent.Message{asked("gone"), asked("a")}, "note photo of a cat", ""},
		"the new file is gone":        {1000, []agent.Message{asked("a"), asked("gone")}, "", model.CodeFileMissing},
		"its bytes are gone":          {1000, []agent.Message{asked("lost")}, "", model.CodeFileMissing},
		"the bytes of an old file":    {1000, []agent.Message{asked("lost", "a"), asked("b")}, "note photo of a cat b", ""},
		"exactly the limit":           {14 + 1, []agent.Message{asked("a"), asked("b")}, "photo of a cat b", ""},
		"an old file is too much":     {14, []agent.Message{asked("a"), asked("b")}, "note b", ""},
		"all older ones go with it":   {102, []agent.Message{asked("b"), asked("a"), asked("c")}, "note note " + strings.Repeat("c", 100), ""},
		"a repeated file counts once": {14, []agent.Message{asked("a"), asked("a", "a")}, "photo of a cat photo of a cat photo of a cat", ""},
		"the new files are too much":  {114, []agent.Message{asked("a", "b", "c")}, "", model.CodeFilesTooLarge},
	} {
		l, _ := newLoader(files, Config{MaxCallFileBytes: tc.most})
		got, release, err := l.load(t.Context(), &statev1.RunRef{Tenant: "acme"}, tc.messages)
		if tc.code != "" {
			if codeOf(err) != tc.code {
				t.Errorf("%s: got %v, want %s", name, err, tc.code)
			}
			continue
		}
		if err != nil || shown(t, got) != tc.want {
			t.Errorf("%s: got %q, %v; want %q", name, shown(t, got), err, tc.want)
			continue
		}
		release()
		if f := tc.messages[len(tc.messages)-1].Parts[1].(agent.File); !strings.HasPrefix(f.URL, eventv1.FileURL("")) {
			t.Errorf("%s: the conversation has changed", name)
		}
	}
	l, _ := newLoader(files, Config{MaxCallFileBytes: 1000})
	if _, _, err := l.load(t.Context(), &statev1.RunRef{Tenant: "other"}, []agent.Message{asked("a")}); codeOf(err) != model.CodeFileMissing {
		t.Errorf("a file of another tenant: got %v", err)
	}
}

func TestAStoredFileIsReadAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, s := newLoader(map[string][]byte{"a": []byte("photo of a cat")}, Config{MaxCallFileBytes: 100})
		s.away.Store(2)
		got, _, err := l.load(t.Context(), &statev1.RunRef{Tenant: "acme"}, []agent.Message{asked("a")})
		if err != nil || shown(t, got) != "photo of a cat" {
			t.Errorf("got %q, %v", shown(t, got), err)
		}
	})
}

func TestTheCacheOfFilesIsBounded(t *testing.T) {
	t.Parallel()
	size := int64(len("data:image/png;base64,") + base64.StdEncoding.EncodedLen(10))
	files := map[string][]byte{}
	for _, id := range []string{"a", "b", "c"} {
		files[id] = bytes.Repeat([]byte(id), 10)
	}
	files["large"] = bytes.Repeat([]byte("x"), 1000)
	l, s := newLoader(files, Config{MaxCallFileBytes: 10_000, FileCacheBytes: 2 * size})
	for _, step := range []struct {
		id    string
		reads int32
	}{{"a", 1}, {"a", 1}, {"b", 2}, {"a", 2}, {"c", 3}, {"a", 3}, {"b", 4}, {"large", 5}, {"b", 5}, {"large", 6}} {
		_, release, err := l.load(t.Context(), &statev1.RunRef{Tenant: "acme"}, []agent.Message{asked(step.id)})
		if err != nil || s.reads.Load() != step.reads {
			t.Fatalf("%s: got %d reads, %v; want %d", step.id, s.reads.Load(), err, step.reads)
		}
		release()
	}
	if l.cache.size > 2*size || l.cache.order.Len() != len(l.cache.byID) {
		t.Errorf("the cache has %d bytes in %d and %d entries", l.cache.size, l.cache.order.Len(), len(l.cache.byID))
	}
}

func TestModelCallsWaitForTheMemoryOfOtherFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLoader(map[string][]byte{"a": make([]byte, 60)}, Config{MaxCallFileBytes: 60, FileMemory: 100})
		_, release, err := l.load(t.Context(), &statev1.RunRef{Tenant: "acme"}, []agent.Message{asked("a")})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, _, err := l.load(ctx, &statev1.RunRef{Tenant: "acme"}, []agent.Message{asked("a")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the call to wait", err)
		}
		loaded := make(chan error)
		go func() {
			_, next, err := l.load(t.Context(), &statev1.RunRef{Tenant: "acme"}, []agent.Message{asked("a")})
			if err == nil {
				next()
			}
			loaded <- err
		}()
		synctest.Wait()
		release()
		release() // does nothing
		if err := <-loaded; err != nil {
			t.Errorf("got %v after the release", err)
		}
	})
}

// quickModel replies at once.
type quickModel struct{}

func (quickModel) Generate(context.Context, model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		_ = yield(model.TextDelta{Text: "hello"}, nil) && yield(model.Finish{Reason: model.FinishStop}, nil)
	}
}

func TestTheModelTimeoutBeginsAfterFilesAreLoaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLoader(map[string][]byte{"a": make([]byte, 60)}, Config{MaxCallFileBytes: 60, FileMemory: 100})
		_, release, err := l.load(t.Context(), &statev1.RunRef{Tenant: "acme"}, []agent.Message{asked("a")})
		if err != nil {
			t.Fatal(err)
		}
		w := New(Config{ModelTimeout: time.Minute}, Peers{
			Log: slog.New(slog.DiscardHandler), Tracer: noop.NewTracerProvider().Tracer(""), Now: time.Now,
		})
		w.files = l
		code := &agentCode{
			worker: w, claimed: claimedRun{ref: &statev1.RunRef{Tenant: "acme"}}, log: w.peers.Log,
			agent: catalog.Agent{Models: map[string]model.Model{"fake/mind": quickModel{}}},
		}
		call := modelRequest{model: "fake/mind", request: model.Request{Messages: []agent.Message{asked("a")}}, reply: &loop.Reply{}}
		ended := make(chan error)
		go func() { ended <- code.generate(t.Context(), call) }()
		time.Sleep(2 * time.Minute) // the files of another call fill the memory
		release()
		if err := <-ended; err != nil {
			t.Errorf("got %v, want a reply", err)
		}
		stopped, cancel := context.WithCancelCause(t.Context())
		cancel(errTooLong)
		if err := code.generate(stopped, call); !errors.Is(err, errTooLong) {
			t.Errorf("got %v for an ended run, want its cause", err)
		}
	})
}
