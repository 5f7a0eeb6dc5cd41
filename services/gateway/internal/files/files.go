// Package files keeps the files of messages out of requests. The state service stores each once, and messages
// refer to it.
//
// Clients of the AI SDK send a file as a data: URL, and repeat it with each later message. Reading a body
// (ReadBody) replaces the large ones by references. It holds at most one file of a request in memory, long enough
// to learn its digest: a file known to the state service costs one question. A file of a message that is not
// stored afterwards, such as an old one of a known session, is deleted by the state service after a while.
//
// Clients receive a reference as the URL of GET /files/{id}, and may send it back. The id is random and is the
// right to read the file, since the images of a page send no key.
package files

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// Limits bounds files. Sizes are in bytes.
type Limits struct {
	File    int64         // of one file
	Files   int           // in one request
	Memory  *httpapi.Pool // of all files in memory
	Reads   *httpapi.Pool // of files at the same time, for each id
	Text    int64         // of a body without its files
	Body    int64         // of a body with its files
	Bodies  *httpapi.Memory
	Timeout time.Duration // for the first bytes of a body to arrive, and for each further progressBytes
}

// Files stores the files of requests and serves them. It may be used by many goroutines.
type Files struct {
	client    statev1.FileServiceClient
	policy    retry.Policy // for retries of calls to the state service
	limits    Limits
	publicURL string // of the gateway; "" for that of the request
}

// New returns a Files. publicURL is the address of the gateway for browsers, without a slash at its end; "" to
// take that of each request.
func New(client statev1.FileServiceClient, policy retry.Policy, limits Limits, publicURL string) *Files {
	return &Files{client: client, policy: policy, limits: limits, publicURL: strings.TrimRight(publicURL, "/")}
}

func fileInvalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "FILE_INVALID", format, args...)
}

// pieceBytes is the size of a piece of a file in memory, and of a message to the state service.
const pieceBytes = 256 << 10

// MemoryOf returns how much memory a file of the size takes, in bytes.
func MemoryOf(size int64) int64 { return (size + pieceBytes - 1) / pieceBytes * pieceBytes }

// content is a file in memory. Its memory is used again for the next file.
type content struct {
	files  *Files
	tenant string
	pieces [][]byte
	size   int64
}

// Write adds bytes. TooLarge (FILE_TOO_LARGE), Exhausted (TOO_MANY_FILES): this gateway has too many files in memory.
func (c *content) Write(p []byte) (int, error) {
	if c.size+int64(len(p)) > c.files.limits.File {
		return 0, fault.New(fault.TooLarge, "FILE_TOO_LARGE",
			"a file may have at most %d bytes; HOLDFAST_GATEWAY_MAX_FILE_BYTES is the limit", c.files.limits.File).
			WithSizes(0, c.files.limits.File)
	}
	for rest := p; len(rest) > 0; {
		at := int(c.size % pieceBytes)
		last := int(c.size / pieceBytes)
		if last == len(c.pieces) {
			if !c.files.limits.Memory.Take(c.tenant, pieceBytes) {
				return 0, fault.New(
					fault.Exhausted,
					tooManyFiles,
					"files of other requests fill the memory for them; send it again in a moment, or raise HOLDFAST_GATEWAY_FILE_MEMORY",
				)
			}
			c.pieces = append(c.pieces, make([]byte, pieceBytes))
		}
		n := copy(c.pieces[last][at:], rest)
		c.size += int64(n)
		rest = rest[n:]
	}
	return len(p), nil
}

// each calls f with the pieces.
func (c *content) each(f func(piece []byte) error) error {
	for at := int64(0); at < c.size; at += pieceBytes {
		if err := f(c.pieces[at/pieceBytes][:min(pieceBytes, c.size-at)]); err != nil {
			return err
		}
	}
	return nil
}

// release gives the memory back.
func (c *content) release() {
	c.files.limits.Memory.Give(c.tenant, int64(len(c.pieces))*pieceBytes)
	c.pieces, c.size = nil, 0
}

// Put stores a file, unless the tenant has it. An empty media type is that of the bytes. Invalid (FILE_INVALID),
// TooLarge (FILE_TOO_LARGE), Exhausted (TOO_MANY_FILES).
func (f *Files) Put(ctx context.Context, tenant, mediaType string, from io.Reader) (*statev1.File, error) {
	c := &content{files: f, tenant: tenant}
	defer c.release()
	if _, err := io.Copy(c, from); err != nil {
		return nil, err
	}
	return f.store(ctx, tenant, mediaType, c)
}

// store is Put for a file in memory.
func (f *Files) store(ctx context.Context, tenant, mediaType string, c *content) (*statev1.File, error) {
	if c.size == 0 {
		return nil, fileInvalid("a file is empty")
	}
	mediaType = plainMediaType(mediaType)
	if mediaType == "" {
		mediaType = plainMediaType(http.DetectContentType(c.pieces[0][:min(pieceBytes, c.size)]))
	}
	digest := sha256.New()
	_ = c.each(func(piece []byte) error { // a hash never fails
		_, err := digest.Write(piece)
		return err
	})
	sum := digest.Sum(nil)
	var file *statev1.File
	err := retry.Do(ctx, f.policy, func() error {
		found, err := f.client.FindFile(ctx, &statev1.FindFileRequest{Tenant: tenant, Sha256: sum, MediaType: mediaType})
		if err == nil {
			file = found.GetFile()
			return nil
		}
		if fault.KindOf(err) == fault.NotFound {
			file, err = f.upload(ctx, tenant, mediaType, c)
		}
		return err
	})
	return file, err
}

// plainMediaType returns a media type without parameters, such as a name. An invalid one stays as it is.
func plainMediaType(text string) string {
	if name, _, err := mime.ParseMediaType(text); err == nil {
		return name
	}
	return text
}

func (f *Files) upload(ctx context.Context, tenant, mediaType string, c *content) (*statev1.File, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.client.PutFile(ctx)
	if err != nil {
		return nil, err
	}
	err = stream.Send(&statev1.PutFileRequest{
		Part: &statev1.PutFileRequest_Head{Head: &statev1.PutFileHead{Tenant: tenant, MediaType: mediaType}},
	})
	if err == nil {
		err = c.each(func(piece []byte) error {
			return stream.Send(&statev1.PutFileRequest{Part: &statev1.PutFileRequest_Data{Data: piece}})
		})
	}
	if err != nil && !errors.Is(err, io.EOF) { // after EOF, the answer has the error
		return nil, err
	}
	answer, err := stream.CloseAndRecv()
	return answer.GetFile(), err
}

// inlineURL is the length of the longest data: URL that stays in its message.
const inlineURL = 8 << 10

// ownURL finds the id in the URL of a file on any gateway.
var ownURL = regexp.MustCompile(`^(?:https?://[^?#]*)?/files/(file_[a-z2-7]{26})$`)

// reference returns the reference that a URL of GET /files/{id} stands for, and other URLs unchanged. The state service
// refuses references to unknown files when the message is stored.
func reference(url string) string {
	if found := ownURL.FindStringSubmatch(url); found != nil {
		return eventv1.FileURL(found[1])
	}
	return url
}

// Refer replaces the URL of a file part by a reference, if it is a large data: URL, whose file is stored, or the URL of a
// stored file. Invalid (FILE_INVALID), TooLarge (FILE_TOO_LARGE), Exhausted (TOO_MANY_FILES).
func (f *Files) Refer(ctx context.Context, tenant string, part *eventv1.FilePart) error {
	part.Url = reference(part.GetUrl())
	if len(part.GetUrl()) <= inlineURL || !isDataURL(part.GetUrl()) {
		return nil
	}
	d := &dataURL{to: &content{files: f, tenant: tenant}}
	defer d.to.release()
	_, err := io.WriteString(d, part.GetUrl())
	if err == nil {
		err = d.end()
	}
	if err != nil {
		return err
	}
	file, err := f.store(ctx, tenant, d.mediaType, d.to)
	if err == nil {
		part.Url = eventv1.FileURL(file.GetFileId())
	}
	return err
}

// ReferAll is Refer for the files of messages.
func (f *Files) ReferAll(ctx context.Context, tenant string, messages []*eventv1.Message) error {
	for _, m := range messages {
		for _, p := range m.GetParts() {
			if p.GetFile() == nil {
				continue
			}
			if err := f.Refer(ctx, tenant, p.GetFile()); err != nil {
				return err
			}
		}
	}
	return nil
}

// ShowStored replaces the references in a stored message by URLs: without a configured address, by paths on this gateway.
func (f *Files) ShowStored(m *eventv1.Message) {
	for _, p := range m.GetParts() {
		if file := p.GetFile(); file != nil {
			file.Url = URL(f.publicURL, file.GetUrl())
		}
	}
}
