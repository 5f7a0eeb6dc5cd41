package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/meters"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// maxFileIDs bounds the ids of a request.
const maxFileIDs = 1000

// maxMediaType bounds a media type in bytes.
const maxMediaType = 255

// fileService implements statev1.FileServiceServer.
type fileService struct {
	statev1.UnimplementedFileServiceServer
	grants     *grants
	store      store.Files
	blobs      store.Blobs
	admissions *admissions
	runner     *runner
	grace      session.Millis
	clock      clock
	meters     *meters.Meters // nil measures nothing
}

func fileInvalid(format string, args ...any) error { return invalid("FILE_INVALID", format, args...) }

// newFileID returns an unguessable id, independent of the other ids: the id is the right to read the file.
func newFileID() string { return "file_" + strings.ToLower(rand.Text()) }

// PutFile implements statev1.FileServiceServer.
func (s *fileService) PutFile(stream grpc.ClientStreamingServer[statev1.PutFileRequest, statev1.PutFileResponse]) (err error) {
	defer func() { s.meters.Refused(stream.Context(), err) }()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	head := first.GetHead()
	x := s.runner.read(first)
	tenant, mediaType := x.id("tenant", head.GetTenant()), readMediaType(x, head.GetMediaType())
	if x.err != nil {
		return x.err
	}
	if err := s.admissions.checkBytes(stream.Context(), tenant, 1); err != nil { // before the bytes are read
		return err
	}
	// An upload ends well before its bytes are due for deletion.
	within := time.Duration(s.grace/2) * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(stream.Context(), within, store.UploadExpired())
	defer cancel()
	key := session.FileKey{Tenant: tenant, FileID: newFileID()}
	if err := s.store.ScheduleBlobDeletion(ctx, key, s.clock.millis()+s.grace); err != nil {
		return err
	}
	content := &upload{stream: stream, mediaType: mediaType, limit: int64(x.limits.FileBytes), hash: sha256.New()}
	file, err := s.putFile(ctx, key, content)
	if err != nil {
		if stream.Context().Err() == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		// Best effort: the bytes are deleted after the grace period otherwise.
		return cmp.Or(content.err, errors.Join(err, s.store.ScheduleBlobDeletion(context.WithoutCancel(ctx), key, s.clock.millis())))
	}
	return stream.SendAndClose(&statev1.PutFileResponse{File: fileOut(file)})
}

func (s *fileService) putFile(ctx context.Context, key session.FileKey, content *upload) (*session.File, error) {
	if err := s.blobs.PutBlob(ctx, key, content); err != nil {
		return nil, err
	}
	if content.size == 0 {
		return nil, fileInvalid("the file is empty")
	}
	if err := s.admissions.checkBytes(ctx, key.Tenant, content.size); err != nil {
		return nil, err
	}
	now := s.clock.millis()
	file, err := s.store.AddFile(ctx, key.Tenant, session.File{
		ID: key.FileID, MediaType: content.mediaType, Size: content.size, Digest: content.hash.Sum(nil), CreatedAt: now,
	}, now+s.grace)
	if err == nil && file.ID == key.FileID { // the tenant did not have these bytes
		s.admissions.bytes.Add(key.Tenant, content.size)
	}
	return file, err
}

// readMediaType returns a media type in its canonical form. Invalid (FILE_INVALID).
func readMediaType(x *reader, text string) string {
	name, parameters, err := mime.ParseMediaType(text)
	canonical := mime.FormatMediaType(name, parameters)
	if err != nil || canonical == "" || len(canonical) > maxMediaType || !strings.Contains(name, "/") {
		x.fail(fileInvalid("the media type %.100q is not valid; name one such as image/png", text))
	}
	return canonical
}

// upload reads the bytes of a PutFile, checks them, and measures them.
type upload struct {
	stream    grpc.ClientStreamingServer[statev1.PutFileRequest, statev1.PutFileResponse]
	mediaType string
	limit     int64

	rest []byte // of the last message
	head []byte // the first bytes of the file, before they are checked
	size int64
	hash hash.Hash
	err  error // other than the end
}

// sniffed is how many bytes http.DetectContentType examines.
const sniffed = 512

// Read implements io.Reader. Invalid (FILE_INVALID), TooLarge (FILE_TOO_LARGE).
func (u *upload) Read(p []byte) (int, error) {
	for len(u.rest) == 0 && u.err == nil {
		r, err := u.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			if u.err = checkContentType(u.mediaType, u.head); u.err == nil {
				return 0, io.EOF
			}
		case err != nil:
			u.err = err
		default:
			u.err = u.add(r.GetData())
		}
	}
	if u.err != nil {
		return 0, u.err
	}
	n := copy(p, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

func (u *upload) add(data []byte) error {
	if len(data) > store.BlobPiece {
		return fileInvalid("a message of PutFile has %d bytes; send at most %d", len(data), store.BlobPiece)
	}
	u.size += int64(len(data))
	if u.size > u.limit {
		return tooLarge("FILE_TOO_LARGE", "the file", int(u.size), int(u.limit))
	}
	u.head = append(u.head, data[:min(len(data), sniffed-len(u.head))]...)
	u.hash.Write(data)
	u.rest = data
	if len(u.head) < sniffed {
		return nil
	}
	return checkContentType(u.mediaType, u.head)
}

// recognized are the media types whose bytes are checked: browsers show them, and models fail on wrong ones.
var recognized = []string{"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"}

// checkContentType gives Invalid (FILE_INVALID) if the bytes are not of their media type.
func checkContentType(mediaType string, head []byte) error {
	name, _, _ := strings.Cut(mediaType, ";")
	if !slices.Contains(recognized, name) || len(head) == 0 {
		return nil
	}
	got := http.DetectContentType(head)
	if name == "application/pdf" && bytes.Contains(head, []byte("%PDF-")) { // some writers put bytes before it
		got = name
	}
	if got != name {
		return fileInvalid("the file is sent as %s, and its bytes are %s; send it with its own media type", name, got)
	}
	return nil
}

// FindFile implements statev1.FileServiceServer.
func (s *fileService) FindFile(ctx context.Context, r *statev1.FindFileRequest) (*statev1.FindFileResponse, error) {
	x := s.runner.read(r)
	tenant, mediaType := x.id("tenant", r.GetTenant()), readMediaType(x, r.GetMediaType())
	if n := len(r.GetSha256()); n != sha256.Size {
		x.fail(fileInvalid("sha256 has %d bytes; give 32", n))
	}
	if x.err != nil {
		return nil, x.err
	}
	found, err := s.store.FindFile(ctx, tenant, r.GetSha256(), mediaType, x.now+s.grace)
	if err != nil {
		return nil, err
	}
	return &statev1.FindFileResponse{File: fileOut(found)}, nil
}

// GetFiles implements statev1.FileServiceServer.
func (s *fileService) GetFiles(ctx context.Context, r *statev1.GetFilesRequest) (*statev1.GetFilesResponse, error) {
	x := s.runner.read(r)
	tenant, ids := x.id("tenant", r.GetTenant()), x.eachID("a file id", r.GetFileIds())
	if n := len(ids); n > maxFileIDs {
		x.refuse("ID_INVALID", "%d file ids are given; the limit is %d", n, maxFileIDs)
	}
	if x.err != nil {
		return nil, x.err
	}
	files, err := s.readable(ctx, tenant, ids)
	if err != nil {
		return nil, err
	}
	answer := &statev1.GetFilesResponse{}
	for i := range files {
		answer.Files = append(answer.Files, fileOut(&files[i]))
	}
	return answer, nil
}

// readable returns the files open to the caller: for an executor, the files in its session's messages.
func (s *fileService) readable(ctx context.Context, tenant string, ids []string) ([]session.File, error) {
	key, limited, err := s.grants.files(ctx, tenant)
	switch {
	case err != nil:
		return nil, err
	case limited:
		return s.store.FilesOf(ctx, key, ids)
	}
	return s.store.FilesByID(ctx, tenant, ids)
}

// find returns a file and its tenant. Without a tenant, the id is the right to read it, except for executors.
func (s *fileService) find(ctx context.Context, tenant, id string) (string, *session.File, error) {
	key, limited, err := s.grants.files(ctx, tenant)
	switch {
	case err != nil:
		return "", nil, err
	case limited:
		files, err := s.store.FilesOf(ctx, key, []string{id})
		if err != nil || len(files) == 0 {
			return "", nil, cmp.Or(err, store.FileNotFound())
		}
		return tenant, &files[0], nil
	}
	of, file, err := s.store.File(ctx, id)
	if err == nil && tenant != "" && tenant != of {
		err = store.FileNotFound()
	}
	return of, file, err
}

// ReadFile implements statev1.FileServiceServer.
func (s *fileService) ReadFile(r *statev1.ReadFileRequest, stream grpc.ServerStreamingServer[statev1.ReadFileResponse]) error {
	x := s.runner.read(r)
	tenant, id := x.optionalID("tenant", r.GetTenant()), x.id("file_id", r.GetFileId())
	if x.err != nil {
		return x.err
	}
	ctx := stream.Context()
	tenant, file, err := s.find(ctx, tenant, id)
	if err != nil {
		return err
	}
	if r.GetOffset() < 0 || r.GetOffset() > file.Size || r.GetLength() < 0 {
		return invalid("RANGE_INVALID", "the file has %d bytes; the offset %d or the length %d is not in it",
			file.Size, r.GetOffset(), r.GetLength())
	}
	if err := stream.Send(&statev1.ReadFileResponse{Part: &statev1.ReadFileResponse_File{File: fileOut(file)}}); err != nil {
		return err
	}
	length := file.Size - r.GetOffset()
	if r.GetLength() > 0 {
		length = min(length, r.GetLength())
	}
	return s.blobs.ReadBlob(ctx, session.FileKey{Tenant: tenant, FileID: file.ID}, r.GetOffset(), length, func(piece []byte) error {
		return stream.Send(&statev1.ReadFileResponse{Part: &statev1.ReadFileResponse_Data{Data: piece}})
	})
}

func fileOut(f *session.File) *statev1.File {
	return &statev1.File{FileId: f.ID, MediaType: f.MediaType, Size: f.Size, Sha256: f.Digest, CreatedAt: int64(f.CreatedAt)}
}

// checkFiles refuses messages with unknown files, so that few commands fail when they are written. NotFound
// (FILE_NOT_FOUND), Invalid (ID_INVALID).
func checkFiles(ctx context.Context, files store.Files, tenant string, ids []string) error {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	if len(ids) == 0 {
		return nil
	}
	if len(ids) > maxFileIDs {
		return invalid("ID_INVALID", "the messages have %d files; the limit is %d", len(ids), maxFileIDs)
	}
	found, err := files.FilesByID(ctx, tenant, ids)
	if err == nil && len(found) < len(ids) {
		err = store.FileNotFound()
	}
	return err
}
