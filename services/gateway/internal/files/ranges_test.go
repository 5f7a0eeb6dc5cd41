package files

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// storedFile is a state service with one file. It counts what is read.
type storedFile struct {
	statev1.FileServiceClient
	data  string
	reads int
	bytes int
}

func (f *storedFile) ReadFile(_ context.Context, r *statev1.ReadFileRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[statev1.ReadFileResponse], error) {
	f.reads++
	head := &statev1.File{FileId: r.GetFileId(), MediaType: "text/plain", Size: int64(len(f.data)), Sha256: make([]byte, 32)}
	return &storedBytes{file: f, rest: f.data[r.GetOffset():], next: &statev1.ReadFileResponse{Part: &statev1.ReadFileResponse_File{File: head}}}, nil
}

type storedBytes struct {
	grpc.ClientStream
	file *storedFile
	next *statev1.ReadFileResponse
	rest string
}

func (s *storedBytes) Recv() (*statev1.ReadFileResponse, error) {
	if next := s.next; next != nil {
		s.next = nil
		return next, nil
	}
	if s.rest == "" {
		return nil, io.EOF
	}
	n := min(len(s.rest), pieceBytes)
	data := s.rest[:n]
	s.rest = s.rest[n:]
	s.file.bytes += n
	return &statev1.ReadFileResponse{Part: &statev1.ReadFileResponse_Data{Data: []byte(data)}}, nil
}

func TestTooManyReadsOfOneFileLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	reads := httpapi.NewPool(2, 10, 1)
	f := New(&storedFile{data: "x"}, retry.Policy{}, Limits{Reads: reads}, "")
	serve := func(id string) error {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/files/"+id, nil)
		r.SetPathValue("id", id)
		return f.Serve(httptest.NewRecorder(), r, "")
	}
	for range 2 { // reads that go on
		reads.Take("f1", 1)
	}
	if err := serve("f1"); fault.ReasonOf(err) != "TOO_MANY_FILES" || fault.KindOf(err) != fault.Exhausted {
		t.Errorf("a third read of a file: got %v, want TOO_MANY_FILES", err)
	}
	for range 3 {
		if err := serve("f2"); err != nil {
			t.Errorf("another file: got %v", err)
		}
	}
	reads.Give("f1", 1)
	if err := serve("f1"); err != nil {
		t.Errorf("after a read has ended: got %v", err)
	}
}

func TestARequestReadsAFileAFewTimesWhateverItsHeaders(t *testing.T) {
	t.Parallel()
	ranges := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("%d-%d", 2*i, 2*i))
		}
		return "bytes=" + strings.Join(all, ",")
	}
	for name, c := range map[string]struct {
		headers http.Header
		status  int
	}{
		"no header":                {http.Header{}, http.StatusOK},
		"one range":                {http.Header{"Range": {"bytes=5-9"}}, http.StatusPartialContent},
		"its end":                  {http.Header{"Range": {"bytes=-5"}}, http.StatusPartialContent},
		"four ranges":              {http.Header{"Range": {ranges(4)}}, http.StatusPartialContent},
		"five ranges":              {http.Header{"Range": {ranges(5)}}, http.StatusOK},
		"4,000 ranges":             {http.Header{"Range": {ranges(4000)}}, http.StatusOK},
		"4,000 headers":            {http.Header{"Range": strings.Split(strings.Repeat("bytes=0-0;", 4000), ";")}, http.StatusOK},
		"4,000 empty ranges":       {http.Header{"Range": {"bytes=" + strings.Repeat(",", 4000) + "0-0"}}, http.StatusOK},
		"a range behind the end":   {http.Header{"Range": {"bytes=900000000-"}}, http.StatusRequestedRangeNotSatisfiable},
		"an unknown unit":          {http.Header{"Range": {"lines=1-2"}}, http.StatusRequestedRangeNotSatisfiable},
		"10,000 tags":              {http.Header{"If-None-Match": {strings.Repeat(`"a",`, 10_000)}}, http.StatusOK},
		"10,000 tags, and a range": {http.Header{"If-Match": {strings.Repeat(`"a",`, 10_000)}, "Range": {"bytes=0-0"}}, http.StatusPreconditionFailed},
		"10,000 encodings":         {http.Header{"Accept-Encoding": {strings.Repeat("gzip,", 10_000)}}, http.StatusOK},
	} {
		state := &storedFile{data: strings.Repeat("x", 1<<20)}
		f := New(state, retry.Policy{}, Limits{}, "")
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/files/f1", nil)
		r.SetPathValue("id", "f1")
		for name, values := range c.headers {
			r.Header[name] = values
		}
		w := httptest.NewRecorder()
		if err := f.Serve(w, r, ""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if w.Code != c.status || state.reads > maxRanges+1 || state.bytes > 2*len(state.data) {
			t.Errorf("%s: got %d with %d reads of %d bytes, want %d with %d reads at most", name, w.Code, state.reads, state.bytes, c.status, maxRanges+1)
		}
	}
}
