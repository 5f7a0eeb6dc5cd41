package bucket_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
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
