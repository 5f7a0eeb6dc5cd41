package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// MaxDescription bounds a description, in bytes.
const MaxDescription = 1 << 20

// describeTimeout bounds one request for a description.
const describeTimeout = 10 * time.Second

// Description is the answer of an endpoint to GET.
type Description struct {
	Data []byte // JSON
	// Tag is the ETag; empty for none.
	Tag string
}

// Describe asks for the description. It returns former if that is still the current one.
//
// Unavailable (ENDPOINT_UNREACHABLE): there is no answer. Conflict (ENDPOINT_REFUSES): the answer is none with a description.
func (c *Client) Describe(ctx context.Context, former *Description) (*Description, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, describeTimeout, fmt.Errorf("it has not answered within %v", describeTimeout))
	defer cancel()
	header := http.Header{"Accept": {"application/json"}}
	if former != nil && former.Tag != "" {
		header.Set("If-None-Match", former.Tag)
	}
	response, err := c.send(ctx, http.MethodGet, nil, header)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	defer response.Body.Close()
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")) // an invalid content type is another one
	switch {
	case response.StatusCode == http.StatusNotModified && header.Get("If-None-Match") != "":
		return former, nil
	case response.StatusCode != http.StatusOK:
		return nil, c.refuses("%v", refusal(response))
	case kind != "application/json":
		return nil, c.refuses("the description has the content type %.100q; it must be application/json", response.Header.Get("Content-Type"))
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, MaxDescription+1))
	switch {
	case err != nil:
		return nil, c.unreachable(ctx, err)
	case len(data) > MaxDescription:
		return nil, c.refuses("the description has more than %d bytes", MaxDescription)
	}
	return &Description{Data: data, Tag: response.Header.Get("ETag")}, nil
}

func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fault.New(fault.Unavailable, "ENDPOINT_UNREACHABLE", "the endpoint cannot be reached: %v", err)
}

func (c *Client) refuses(format string, args ...any) error {
	return fault.New(fault.Conflict, "ENDPOINT_REFUSES", format, args...)
}

// isUnreachable reports whether an error says that the application has not executed a request.
func isUnreachable(err error) bool {
	_, ok := errors.AsType[*unsentError](err)
	return ok
}
