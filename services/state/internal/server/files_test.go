package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/sweep"
)

// photo returns random bytes that begin like a PNG.
func photo(size int) []byte {
	data := make([]byte, size)
	_, _ = rand.Read(data) // never fails
	copy(data, "\x89PNG\x0d\x0a\x1a\x0a")
	return data
}

func (b *bench) tryPut(ctx context.Context, tenant, mediaType string, data []byte) (*statev1.File, error) {
	b.Helper()
	stream, err := b.files.PutFile(ctx)
	b.must(err)
	err = stream.Send(&statev1.PutFileRequest{Part: &statev1.PutFileRequest_Head{Head: &statev1.PutFileHead{Tenant: tenant, MediaType: mediaType}}})
	for rest := data; len(rest) > 0 && err == nil; {
		piece := rest[:min(len(rest), 300_000)]
		rest = rest[len(piece):]
		err = stream.Send(&statev1.PutFileRequest{Part: &statev1.PutFileRequest_Data{Data: piece}})
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	got, err := stream.CloseAndRecv()
	return got.GetFile(), err
}

func (b *bench) put(tenant, mediaType string, data []byte) *statev1.File {
	b.Helper()
	f, err := b.tryPut(b.Context(), tenant, mediaType, data)
	b.must(err)
	return f
}

func (b *bench) readFile(r *statev1.ReadFileRequest) (*statev1.File, []byte, error) {
	b.Helper()
	stream, err := b.files.ReadFile(b.Context(), r)
	b.must(err)
	var head *statev1.File
	var data []byte
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return head, data, nil
		}
		if err != nil {
			return head, data, err
		}
		if head == nil {
			head = part.GetFile()
		}
		data = append(data, part.GetData()...)
	}
}

func fileMessage(id string) *eventv1.Message {
	return &eventv1.Message{Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{{Part: &eventv1.Part_File{File: &eventv1.FilePart{MediaType: "image/png", Url: eventv1.FileURL(id)}}}}}
}

func TestAFileIsReadAsItWasStored(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		data := photo(3<<20 + 5)
		digest := sha256.Sum256(data)
		f := b.put("acme", "Image/PNG", data)
		if f.GetSize() != int64(len(data)) || f.GetMediaType() != "image/png" || !bytes.Equal(f.GetSha256(), digest[:]) || !regexp.MustCompile(`^file_[a-z0-9]{26}$`).MatchString(f.GetFileId()) {
			t.Errorf("got %v", f)
		}
		for _, r := range []*statev1.ReadFileRequest{{Tenant: "acme"}, {}, {Offset: 7}, {Offset: 1 << 20, Length: 1<<20 + 1}, {Offset: f.GetSize()}, {Offset: f.GetSize() - 1, Length: 9}} {
			r.FileId = f.GetFileId()
			want := data[r.Offset:]
			if r.Length > 0 {
				want = want[:min(int(r.Length), len(want))]
			}
			head, got, err := b.readFile(r)
			if err != nil || head.GetFileId() != f.GetFileId() || !bytes.Equal(got, want) {
				t.Errorf("%v: got %v and %d bytes, %v; want %d", r, head, len(got), err, len(want))
			}
		}
		found, err := b.files.FindFile(t.Context(), &statev1.FindFileRequest{Tenant: "acme", Sha256: digest[:], MediaType: "image/png"})
		if err != nil || found.GetFile().GetFileId() != f.GetFileId() {
			t.Errorf("got %v, %v", found, err)
		}
		list, err := b.files.GetFiles(t.Context(), &statev1.GetFilesRequest{Tenant: "acme", FileIds: []string{f.GetFileId(), "unknown"}})
		if err != nil || len(list.GetFiles()) != 1 {
			t.Errorf("got %v, %v", list, err)
		}
		if again := b.put("acme", "image/png", data); again.GetFileId() != f.GetFileId() {
			t.Error("the same bytes were stored twice")
		}
		if other := b.put("other", "image/png", data); other.GetFileId() == f.GetFileId() {
			t.Error("two tenants share a file")
		}
	})
}

func TestAFileOfAnotherTenantIsUnknown(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		f := b.put("other", "image/png", photo(100))
		_, _, err := b.readFile(&statev1.ReadFileRequest{Tenant: "acme", FileId: f.GetFileId()})
		b.refuses(err, fault.NotFound, "FILE_NOT_FOUND")
		_, err = b.files.FindFile(t.Context(), &statev1.FindFileRequest{Tenant: "acme", Sha256: f.GetSha256(), MediaType: "image/png"})
		b.refuses(err, fault.NotFound, "FILE_NOT_FOUND")
		b.announce()
		for _, id := range []string{f.GetFileId(), "file_unknown"} {
			_, err = b.runs.StartRun(t.Context(), &statev1.StartRunRequest{Tenant: "acme", SessionId: "s", AgentType: "support", RequestKey: "k", Messages: []*eventv1.Message{fileMessage(id)}})
			b.refuses(err, fault.NotFound, "FILE_NOT_FOUND")
		}
		mine := b.put("acme", "image/png", photo(100))
		_, err = b.runs.StartRun(t.Context(), &statev1.StartRunRequest{Tenant: "acme", SessionId: "s", AgentType: "support", RequestKey: "k", Messages: []*eventv1.Message{fileMessage(mine.GetFileId())}})
		b.must(err)
		_, err = b.sessions.AppendMessages(t.Context(), &statev1.AppendMessagesRequest{Tenant: "acme", SessionId: "s", Messages: []*eventv1.Message{fileMessage(f.GetFileId())}})
		b.refuses(err, fault.NotFound, "FILE_NOT_FOUND")
	})
}

func TestAFileOfTheLargestSizeIsStoredAndALargerOneRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	limit := b.config.Limits.FileBytes
	if limit != 20<<20 {
		t.Errorf("the default limit is %d, want 20 MiB", limit)
	}
	if f := b.put("acme", "image/png", photo(limit)); f.GetSize() != int64(limit) {
		t.Errorf("got %v", f)
	}
	_, err := b.tryPut(t.Context(), "acme", "image/png", photo(limit+1))
	b.refuses(err, fault.TooLarge, "FILE_TOO_LARGE")
	due, err := b.store.DueBlobDeletions(t.Context(), "", b.millis(), 9)
	if err != nil || len(due) != 1 {
		t.Errorf("got %v, %v; want the bytes of the refused file to be deleted at once", due, err)
	}
}

func TestAFileMustHaveItsMediaType(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	valid := map[string]string{
		"image/png": "\x89PNG\x0d\x0a\x1a\x0a", "image/jpeg": "\xff\xd8\xff\xe0", "image/gif": "GIF89a", "image/webp": "RIFF\x00\x00\x00\x00WEBPVP8 ",
		"application/pdf": "%PDF-1.7\n", "text/plain": "<html>", "image/svg+xml": "<svg/>", "application/octet-stream": "GIF89a", "text/plain;charset=utf-8": "x",
	}
	for mediaType, content := range valid {
		b.put("acme", mediaType, []byte(content+mediaType))
	}
	for _, wrong := range [][2]string{
		{"image/png", "<html><script>"}, {"image/png", "GIF89a"}, {"image/jpeg", "\x89PNG\x0d\x0a\x1a\x0a"}, {"application/pdf", "hello"},
		{"image/png", ""}, {"", "x"}, {"png", "x"}, {"image/png\r\nX: y", "x"}, {"text/" + strings.Repeat("x", 300), "x"},
	} {
		_, err := b.tryPut(t.Context(), "acme", wrong[0], []byte(wrong[1]))
		b.refuses(err, fault.Invalid, "FILE_INVALID")
	}
	_, err := b.tryPut(t.Context(), "", "image/png", photo(9))
	b.refuses(err, fault.Invalid, "ID_INVALID")
}

// failingBlobs fails before or after the bytes are stored.
type failingBlobs struct {
	store.Blobs
	after bool
}

func (f failingBlobs) PutBlob(ctx context.Context, key session.FileKey, from io.Reader) error {
	if f.after {
		if err := f.Blobs.PutBlob(ctx, key, from); err != nil {
			return err
		}
	}
	return errors.New("the process dies")
}

func TestAnUploadThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		for _, after := range []bool{false, true} {
			b := open()
			working := b.store.Blobs
			b.server.files.blobs = failingBlobs{working, after}
			if _, err := b.tryPut(t.Context(), "acme", "image/png", photo(2<<20)); err == nil {
				t.Fatal("the file was stored")
			}
			b.server.files.blobs = working
			b.sweepFiles()
			if due, err := b.store.DueBlobDeletions(t.Context(), "", b.millis()+1e12, 9); err != nil || len(due) != 0 {
				t.Errorf("got %v, %v; want the bytes deleted", due, err)
			}
		}
	})
}

// endlessBlobs never finishes an upload.
type endlessBlobs struct{ store.Blobs }

func (endlessBlobs) PutBlob(ctx context.Context, _ session.FileKey, _ io.Reader) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAnUploadEndsBeforeItsBytesAreDue(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.FileGrace = 200 * time.Millisecond })
	b.server.files.blobs = endlessBlobs{b.store.Blobs}
	began := time.Now()
	_, err := b.tryPut(t.Context(), "acme", "image/png", photo(9))
	b.refuses(err, fault.Unavailable, "UPLOAD_EXPIRED")
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("the upload ended after %s, want half of the grace", took)
	}
}

func TestAnUploadWhoseClientLeavesIsDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, leave := context.WithCancel(t.Context())
	stream, err := b.files.PutFile(ctx)
	b.must(err)
	b.must(stream.Send(&statev1.PutFileRequest{Part: &statev1.PutFileRequest_Head{Head: &statev1.PutFileHead{Tenant: "acme", MediaType: "image/png"}}}))
	b.must(stream.Send(&statev1.PutFileRequest{Part: &statev1.PutFileRequest_Data{Data: photo(1000)}}))
	b.eventually("the upload has begun", func() bool {
		due, err := b.store.DueBlobDeletions(t.Context(), "", b.millis()+1e12, 9)
		return err == nil && len(due) == 1
	})
	leave()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		due, err := b.store.DueBlobDeletions(t.Context(), "", b.millis(), 9)
		b.must(err)
		if len(due) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the bytes are not due for deletion")
		}
	}
}

// sweepFiles deletes what is due.
func (b *bench) sweepFiles() {
	b.Helper()
	b.must(sweep.Files{Store: b.store, Blobs: b.store.Blobs, Now: b.millis}.Run(b.Context()))
}
