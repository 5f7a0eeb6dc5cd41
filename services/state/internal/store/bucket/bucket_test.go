package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/blobtest"
	"github.com/holdfast-run/holdfast/services/state/internal/store/bucket"
)

// serve starts an object store in the process, with one bucket.
func serve(t *testing.T) (bucket.Config, http.RoundTripper) {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("files"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	return bucket.Config{Endpoint: strings.TrimPrefix(server.URL, "https://"), Bucket: "files", Region: "x", Prefix: "some/place/", AccessKey: "a", SecretKey: "b"}, server.Client().Transport
}

func open(t *testing.T, c bucket.Config, transport http.RoundTripper) *bucket.Bucket {
	t.Helper()
	b, err := bucket.Open(c, transport)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestABucketConforms(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) store.Blobs {
		c, transport := serve(t)
		return open(t, c, transport)
	})
}

func TestTwoReplicasMayShareABucket(t *testing.T) {
	t.Parallel()
	c, transport := serve(t)
	blobtest.Shared(t, open(t, c, transport), open(t, c, transport))
}

func TestAMissingBucketIsAnOutage(t *testing.T) {
	t.Parallel()
	c, transport := serve(t)
	c.Bucket = "missing"
	b, key := open(t, c, transport), session.FileKey{Tenant: "acme", FileID: "f"}
	if err := b.PutBlob(t.Context(), key, strings.NewReader("x")); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v, want an outage: the bucket may come", err)
	}
	if _, err := bucket.Open(bucket.Config{Endpoint: "x"}, nil); fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Errorf("got %v without a bucket, want CONFIG_INVALID", err)
	}
	if _, err := bucket.Open(bucket.Config{Endpoint: "http://x/y", Bucket: "b"}, nil); fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Errorf("got %v for a URL, want CONFIG_INVALID", err)
	}
}

// requestCounter counts requests.
type requestCounter struct {
	http.RoundTripper
	requests atomic.Int64
}

func (c *requestCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

func TestASmallBlobIsOneRequest(t *testing.T) {
	t.Parallel()
	c, transport := serve(t)
	counter := &requestCounter{RoundTripper: transport}
	b := open(t, c, counter)
	for size, want := range map[int]int64{1: 1, 10_000: 1, 5<<20 - 1: 1, 5 << 20: 3, 5<<20 + 1: 4} {
		counter.requests.Store(0)
		key := session.FileKey{Tenant: "acme", FileID: fmt.Sprint("f", size)}
		if err := b.PutBlob(t.Context(), key, strings.NewReader(strings.Repeat("x", size))); err != nil {
			t.Fatal(err)
		}
		if got := counter.requests.Load(); got != want {
			t.Errorf("%d bytes: got %d requests, want %d", size, got, want)
		}
		var got int
		if err := b.ReadBlob(t.Context(), key, 0, int64(size), func(piece []byte) error { got += len(piece); return nil }); err != nil || got != size {
			t.Errorf("read %d bytes, %v; want %d", got, err, size)
		}
	}
}

// slowReader reports that it is read, and ends when released.
type slowReader struct {
	started  chan<- struct{}
	released <-chan struct{}
}

func (r slowReader) Read([]byte) (int, error) {
	r.started <- struct{}{}
	<-r.released
	return 0, io.EOF
}

func TestUploadsAtATimeHaveALimit(t *testing.T) {
	t.Parallel()
	c, transport := serve(t)
	b := open(t, c, transport)
	started, released := make(chan struct{}, 100), make(chan struct{})
	put := func(ctx context.Context, i int) error {
		return b.PutBlob(ctx, session.FileKey{Tenant: "acme", FileID: fmt.Sprint("f", i)}, slowReader{started, released})
	}
	const limit = 32
	var uploads sync.WaitGroup
	for i := range limit {
		uploads.Go(func() {
			if err := put(t.Context(), i); err != nil {
				t.Error(err)
			}
		})
	}
	for range limit {
		<-started
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := put(ctx, limit); !errors.Is(err, context.Canceled) || len(started) > 0 {
		t.Errorf("got %v and %d more uploads, want the upload to wait", err, len(started))
	}
	close(released)
	uploads.Wait()
}
