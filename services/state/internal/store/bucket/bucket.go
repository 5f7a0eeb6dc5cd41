// Package bucket stores the bytes of files in a bucket of an object store that speaks S3.
package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Config configures the bucket.
type Config struct {
	Endpoint  string `env:"HOLDFAST_STATE_S3_ENDPOINT" envDefault:"s3.amazonaws.com" doc:"host of the object store, maybe with a port"`
	Bucket    string `env:"HOLDFAST_STATE_S3_BUCKET" doc:"bucket for the bytes of files; it must exist"`
	Region    string `env:"HOLDFAST_STATE_S3_REGION" doc:"region of the bucket; empty to ask the object store"`
	Prefix    string `env:"HOLDFAST_STATE_S3_PREFIX" doc:"beginning of the names of all objects, such as holdfast/"`
	AccessKey string `env:"HOLDFAST_STATE_S3_ACCESS_KEY" doc:"access key of the object store; empty for the role of the machine"`
	SecretKey string `env:"HOLDFAST_STATE_S3_SECRET_KEY" secret:"true" doc:"secret of the access key"`
	Insecure  bool   `env:"HOLDFAST_STATE_S3_INSECURE" envDefault:"false" doc:"true speaks HTTP without TLS to the object store"`
}

// Bucket implements store.Blobs.
type Bucket struct {
	client       *minio.Client
	name, prefix string
	uploads      chan struct{} // has an element for each upload in progress
}

// Open prepares a client of the bucket. It connects to nothing. A nil transport is the usual one. Invalid (CONFIG_INVALID).
func Open(c Config, transport http.RoundTripper) (*Bucket, error) {
	if c.Bucket == "" {
		return nil, fault.New(fault.Invalid, "CONFIG_INVALID", "files in a bucket need HOLDFAST_STATE_S3_BUCKET")
	}
	keys := credentials.NewIAM("")
	if c.AccessKey != "" {
		keys = credentials.NewStaticV4(c.AccessKey, c.SecretKey, "")
	}
	client, err := minio.New(
		c.Endpoint,
		&minio.Options{Creds: keys, Secure: !c.Insecure, Region: c.Region, MaxRetries: maxRetries, Transport: transport},
	)
	if err != nil {
		return nil, fault.New(fault.Invalid, "CONFIG_INVALID", "the object store cannot be used: %v", err)
	}
	return &Bucket{client, c.Bucket, c.Prefix, make(chan struct{}, maxUploads)}, nil
}

// maxRetries bounds the attempts at a request. Callers retry as well.
const maxRetries = 3

// partBytes is the smallest part of an upload, held in memory.
const partBytes = 5 << 20

// maxUploads bounds the uploads at a time, and so their memory: at most two parts each. Others wait.
const maxUploads = 32

// object returns the name of the object. The tenant becomes a digest: it may have any characters.
func (b *Bucket) object(key session.FileKey) string {
	tenant := sha256.Sum256([]byte(key.Tenant))
	return b.prefix + path.Join(hex.EncodeToString(tenant[:16]), hex.EncodeToString([]byte(key.FileID)))
}

// PutBlob implements store.Blobs. A blob smaller than a part is one request, a large one several.
func (b *Bucket) PutBlob(ctx context.Context, key session.FileKey, from io.Reader) error {
	select {
	case b.uploads <- struct{}{}:
		defer func() { <-b.uploads }()
	case <-ctx.Done():
		return ctx.Err()
	}
	source := &sourceReader{from: from}
	var head bytes.Buffer
	if _, err := head.ReadFrom(io.LimitReader(source, partBytes)); err != nil {
		return err
	}
	var content io.Reader = bytes.NewReader(head.Bytes())
	size := int64(head.Len())
	if size == partBytes { // maybe more follows
		content, size = io.MultiReader(content, source), -1
	}
	_, err := b.client.PutObject(
		ctx,
		b.name,
		b.object(key),
		content,
		size,
		minio.PutObjectOptions{PartSize: partBytes, ContentType: "application/octet-stream"},
	)
	if source.err != nil {
		return source.err
	}
	return b.wrap(ctx, "store an object", err)
}

// sourceReader keeps the error of a reader, which the client of the bucket would wrap.
type sourceReader struct {
	from io.Reader
	err  error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// ReadBlob implements store.Blobs, with a request for each piece, so that none stays open while each waits.
func (b *Bucket) ReadBlob(ctx context.Context, key session.FileKey, offset, length int64, each func([]byte) error) error {
	for rest := length; rest > 0; {
		piece, err := b.readPiece(ctx, key, offset, min(rest, store.BlobPiece))
		if err != nil {
			return err
		}
		if err := each(piece); err != nil {
			return err
		}
		offset, rest = offset+int64(len(piece)), rest-int64(len(piece))
	}
	return nil
}

func (b *Bucket) readPiece(ctx context.Context, key session.FileKey, offset, length int64) ([]byte, error) {
	var options minio.GetObjectOptions
	if err := options.SetRange(offset, offset+length-1); err != nil {
		return nil, err
	}
	object, err := b.client.GetObject(ctx, b.name, b.object(key), options)
	if err != nil {
		return nil, b.wrap(ctx, "read an object", err)
	}
	defer object.Close()
	piece, err := io.ReadAll(object)
	if err == nil && int64(len(piece)) < length {
		return nil, store.BlobNotFound()
	}
	return piece, b.wrap(ctx, "read an object", err)
}

// DeleteBlob implements store.Blobs. It deletes the parts of an upload that did not end as well.
func (b *Bucket) DeleteBlob(ctx context.Context, key session.FileKey) error {
	if err := b.client.RemoveIncompleteUpload(ctx, b.name, b.object(key)); err != nil && minio.ToErrorResponse(err).Code != "NoSuchUpload" {
		return b.wrap(ctx, "delete an upload", err)
	}
	return b.wrap(ctx, "delete an object", b.client.RemoveObject(ctx, b.name, b.object(key), minio.RemoveObjectOptions{}))
}

// wrap turns errors of the object store into faults.
func (b *Bucket) wrap(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	switch minio.ToErrorResponse(err).Code {
	case "NoSuchKey", "InvalidRange":
		return store.BlobNotFound()
	}
	return store.Unavailable(fmt.Errorf("%s in bucket %s: %w", what, b.name, err))
}
