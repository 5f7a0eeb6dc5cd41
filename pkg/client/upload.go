package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// maxRefusal bounds the body of a refusal, in bytes.
const maxRefusal = 64 << 10

// Upload stores a file ahead, over POST /files, and returns it for agent.v1.InputPart.file. It is not repeated in an
// outage. An empty media type is that of the bytes; the name may be empty. A file without a message is deleted after a
// day. Invalid (FILE_INVALID), TooLarge (FILE_TOO_LARGE), Exhausted (TOO_MANY_FILES).
func (c *Client) Upload(ctx context.Context, mediaType, name string, file io.Reader) (*eventv1.FilePart, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/files", file)
	if err != nil {
		return nil, err
	}
	c.auth.authorize(r.Header)
	r.Header.Set("Accept", "application/json")
	if mediaType != "" {
		r.Header.Set("Content-Type", mediaType)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "UNAVAILABLE", "the gateway cannot be reached: %v", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, refusalOf(answer)
	}
	var stored struct{ URL, MediaType string }
	if err := json.NewDecoder(answer.Body).Decode(&stored); err != nil {
		return nil, fault.New(fault.Unavailable, "UNAVAILABLE", "the answer cannot be read: %v", err)
	}
	return &eventv1.FilePart{MediaType: stored.MediaType, Url: stored.URL, Filename: name}, nil
}

// refusalOf returns the fault of a refused HTTP request.
func refusalOf(answer *http.Response) error {
	kind := fault.Internal
	if i := slices.IndexFunc(fault.Kinds(), func(k fault.Kind) bool { return rpc.HTTPStatus(k) == answer.StatusCode }); i >= 0 {
		kind = fault.Kinds()[i]
	}
	var refusal struct{ Code, Detail, Error string }
	_ = json.NewDecoder(io.LimitReader(answer.Body, maxRefusal)).Decode(&refusal) // a proxy may have answered
	if refusal.Code == "" {
		refusal.Code, refusal.Error = "UNKNOWN", "the answer is "+answer.Status
	}
	if refusal.Detail == "" {
		refusal.Detail = refusal.Error
	}
	return fault.New(kind, refusal.Code, "%s", refusal.Detail)
}
