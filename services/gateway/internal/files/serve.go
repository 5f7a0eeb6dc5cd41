package files

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// The reasons of several faults.
const (
	fileNotFound = "FILE_NOT_FOUND"
	tooManyFiles = "TOO_MANY_FILES"
)

// maxAge is how long browsers may keep a file, in seconds. Its bytes never change.
const maxAge = 365 * 24 * 60 * 60

// maxRanges bounds the ranges of a request: each is read from the state service by a call of its own. A request with
// more receives the whole file.
const maxRanges = 4

// formBytes is the size limit of a form beside its file.
const formBytes = 1 << 20

// Uploaded is the answer to an upload.
type Uploaded struct {
	ID        string `json:"id"`
	URL       string `json:"url" doc:"for the url of a file part, and for everybody who shall see the file"`
	MediaType string `json:"mediaType"`
	Size      int64  `json:"size"`
}

// Routes are the routes of files.
func (f *Files) Routes() []httpapi.Route {
	get := httpapi.About{
		Name: "getFile", Summary: "Returns the bytes of a file. It needs no key: the id is random, and whoever knows it may read the file.",
		Parameters: []httpapi.Parameter{httpapi.PathID("id", "the file")},
		Answers: []httpapi.Answer{
			{Status: http.StatusOK, About: "the bytes, with the media type of the file", Type: "*/*"},
			{Status: http.StatusPartialContent, About: "the bytes of the header Range", Type: "*/*"},
			{Status: http.StatusNotModified, About: "the client has the file"},
		},
		Faults: httpapi.Faults{
			fault.NotFound:    {fileNotFound},
			fault.Exhausted:   {tooManyFiles},
			fault.Unavailable: {"STORE_UNAVAILABLE", "UNAVAILABLE"},
		},
	}
	return []httpapi.Route{
		{Method: http.MethodPost, Pattern: "/files", Handler: f.Upload, Scope: auth.Chat, About: httpapi.About{
			Name:     "uploadFile",
			Summary:  "Stores a file for messages: the body itself, with its media type as the content type, or the first file of a form.",
			BodyType: "application/octet-stream", MaxBytes: f.limits.File,
			Answers: []httpapi.Answer{{Status: http.StatusOK, About: "the file", Body: Uploaded{}}},
			Faults: httpapi.Faults{
				fault.Invalid:   {"BODY_INVALID", "FILE_INVALID"},
				fault.TooLarge:  {"FILE_TOO_LARGE"},
				fault.Exhausted: {"QUOTA_BYTES", tooManyFiles},
			},
		}},
		{Method: http.MethodGet, Pattern: "/files/{id}", Handler: f.Serve, Public: true, About: get},
		{Method: http.MethodHead, Pattern: "/files/{id}", Handler: f.Serve, Public: true}, // not described: it is a part of GET
	}
}

// isHost matches a name or an address with an optional port: nothing that would change the rest of a URL.
var isHost = regexp.MustCompile(`^(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?$`)

// Base returns the address of the gateway for the client of a request.
func (f *Files) Base(r *http.Request) string {
	if f.publicURL != "" {
		return f.publicURL
	}
	scheme, host := "http", r.Host
	if r.TLS != nil {
		scheme = "https"
	}
	if proto, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ","); slices.Contains(
		[]string{"http", "https"},
		strings.ToLower(strings.TrimSpace(proto)),
	) {
		scheme = strings.ToLower(strings.TrimSpace(proto))
	}
	forwarded, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Host"), ",")
	if forwarded = strings.TrimSpace(forwarded); isHost.MatchString(forwarded) {
		host = forwarded
	}
	return scheme + "://" + host
}

// URL returns the URL of a file part for a client: GET /files/{id} for a reference, and any other URL unchanged.
func URL(base, url string) string {
	if id, ok := eventv1.FileID(url); ok {
		return base + "/files/" + id
	}
	return url
}

// Show replaces the references in messages by URLs for a client.
func Show(base string, messages []uistream.UIMessage) {
	for _, m := range messages {
		for i := range m.Parts {
			if p := &m.Parts[i]; p.Type == "file" {
				p.URL = URL(base, p.URL)
			}
		}
	}
}

// Upload is POST /files.
func (f *Files) Upload(w http.ResponseWriter, r *http.Request, tenant string) error {
	extend := extender(w)
	progress := func() error { return extend(f.policy.Now().Add(f.limits.Timeout)) }
	if err := progress(); err != nil {
		return err
	}
	r.Body = http.MaxBytesReader(w, r.Body, f.limits.File+formBytes)
	mediaType, from, err := uploadOf(r, progress)
	if err != nil {
		return err
	}
	file, err := f.Put(r.Context(), tenant, mediaType, &countingReader{from: from, progress: progress})
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return formTooLarge()
	}
	if errors.Is(err, errSource) {
		return fault.New(fault.Invalid, "BODY_INVALID", "the body is incomplete")
	}
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusOK, Uploaded{
		ID: file.GetFileId(), URL: URL(f.Base(r), eventv1.FileURL(file.GetFileId())), MediaType: file.GetMediaType(), Size: file.GetSize(),
	})
	return nil
}

func formTooLarge() error {
	return fault.New(
		fault.TooLarge,
		"FILE_TOO_LARGE",
		"a form may have at most %d bytes beside the longest file; send its file alone",
		formBytes,
	)
}

// uploadOf returns the file of a request and its media type; "" stands for the type of the bytes. Invalid
// (BODY_INVALID), TooLarge (FILE_TOO_LARGE): the parts before the file are too long.
func uploadOf(r *http.Request, progress func() error) (mediaType string, file io.Reader, err error) {
	mediaType = r.Header.Get("Content-Type")
	if name, _, _ := mime.ParseMediaType(mediaType); name != "multipart/form-data" {
		return mediaType, r.Body, nil
	}
	invalid := fault.New(fault.Invalid, "BODY_INVALID", "the form has no file")
	r.Body = io.NopCloser(&countingReader{from: r.Body, progress: progress})
	form, err := r.MultipartReader()
	for err == nil {
		part, next := form.NextPart()
		if err = next; err == nil && part.FileName() != "" {
			return part.Header.Get("Content-Type"), part, nil
		}
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return "", nil, formTooLarge()
	}
	return "", nil, invalid
}

// shown are the media types that browsers may show in a page. Others are downloads, since they may have scripts.
var shown = []string{"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", "application/pdf"}

// Serve is GET /files/{id}. NotFound (FILE_NOT_FOUND), Exhausted (TOO_MANY_FILES).
func (f *Files) Serve(w http.ResponseWriter, r *http.Request, _ string) error {
	id := r.PathValue("id")
	if err := httpapi.CheckID("id", id); err != nil {
		return err
	}
	if !f.limits.Reads.Take(id, 1) {
		return fault.New(
			fault.Exhausted,
			tooManyFiles,
			"this gateway is already sending too many files; send it again in a moment, or raise HOLDFAST_GATEWAY_MAX_FILE_READS",
		)
	}
	defer f.limits.Reads.Give(id, 1)
	bytes := &fileReader{ctx: r.Context(), client: f.client, id: id}
	defer bytes.stop()
	if err := retry.Do(r.Context(), f.policy, bytes.open); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", bytes.file.GetMediaType())
	h.Set("Content-Disposition", "attachment")
	if slices.Contains(shown, bytes.file.GetMediaType()) {
		h.Set("Content-Disposition", "inline")
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin") // for the images of pages that isolate themselves
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "private, immutable, max-age="+strconv.Itoa(maxAge))
	h.Set("ETag", `"`+hex.EncodeToString(bytes.file.GetSha256()[:16])+`"`)
	if strings.Count(strings.Join(r.Header.Values("Range"), ","), ",") >= maxRanges {
		r.Header.Del("Range") // RFC 9110 allows the whole file instead
	}
	http.ServeContent(w, r, "", time.Time{}, bytes)
	if bytes.err != nil { // the client must not take the part for the whole
		return httpapi.ErrCut
	}
	return nil
}

// fileReader reads a file from the state service, from the place of the last Seek on.
type fileReader struct {
	ctx    context.Context //nolint:containedctx // of the request
	client statev1.FileServiceClient
	id     string

	file   *statev1.File // after open
	stream grpc.ServerStreamingClient[statev1.ReadFileResponse]
	cancel context.CancelFunc
	at     int64  // the offset of the next Read
	from   int64  // the offset of the next byte of the stream
	rest   []byte // of the last piece
	err    error
}

// open opens the stream at the offset.
func (f *fileReader) open() error {
	f.stop()
	ctx, cancel := context.WithCancel(f.ctx)
	f.cancel = cancel // stop calls it
	stream, err := f.client.ReadFile(ctx, &statev1.ReadFileRequest{FileId: f.id, Offset: f.at})
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	f.file, f.stream, f.from, f.rest = first.GetFile(), stream, f.at, nil
	return nil
}

func (f *fileReader) stop() {
	if f.cancel != nil {
		f.cancel()
	}
	f.stream, f.cancel = nil, nil
}

// Seek implements io.Seeker.
func (f *fileReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.file.GetSize()
	}
	if offset < 0 {
		return 0, errors.New("the offset is negative")
	}
	f.at = offset
	return offset, nil
}

// Read implements io.Reader.
func (f *fileReader) Read(p []byte) (int, error) {
	if f.at >= f.file.GetSize() {
		return 0, io.EOF
	}
	if f.stream == nil || f.from != f.at {
		if f.err = f.open(); f.err != nil {
			return 0, f.err
		}
	}
	for len(f.rest) == 0 {
		piece, err := f.stream.Recv()
		if err != nil {
			f.err = errors.Join(io.ErrUnexpectedEOF, err)
			return 0, f.err
		}
		f.rest = piece.GetData()
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	f.at += int64(n)
	f.from = f.at
	return n, nil
}
