package api

import (
	"compress/gzip"
	"io"

	"connectrpc.com/connect"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Bounds of a compressed request. A small body that inflates to a large one costs the server more than its
// sender: JSON and protobuf of real requests shrink by less than maxRatio.
const (
	maxRatio    = 100      // inflated bytes for each byte
	freeInflate = 64 << 10 // bytes that a request may inflate to in any case
)

// withGzip is the compression of requests and answers.
func withGzip() connect.HandlerOption {
	return connect.WithCompression("gzip",
		func() connect.Decompressor { return &inflater{} },
		func() connect.Compressor { return gzip.NewWriter(io.Discard) })
}

// inflater inflates gzip until the ratio is exceeded. It implements connect.Decompressor.
type inflater struct {
	gzip     gzip.Reader
	from     countedReader
	inflated int64
}

// Reset implements connect.Decompressor.
func (i *inflater) Reset(from io.Reader) error {
	i.from, i.inflated = countedReader{from: from}, 0
	return i.gzip.Reset(&i.from)
}

// Read implements io.Reader. TooLarge (BODY_TOO_LARGE).
func (i *inflater) Read(p []byte) (int, error) {
	n, err := i.gzip.Read(p)
	i.inflated += int64(n)
	if i.inflated > freeInflate+maxRatio*i.from.read {
		return 0, readError(
			fault.New(fault.TooLarge, "BODY_TOO_LARGE", "a compressed request may inflate to %d times its size; send it uncompressed", maxRatio),
		)
	}
	return n, err
}

// Close implements connect.Decompressor.
func (i *inflater) Close() error { return i.gzip.Close() }

// countedReader counts what is read from a reader.
type countedReader struct {
	from io.Reader
	read int64 // bytes
}

func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.read += int64(n)
	return n, err
}
