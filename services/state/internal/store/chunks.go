package store

import (
	"errors"
	"io"
)

// EachPiece reads all of from, and calls put with each piece of BlobPiece bytes and its offset. The last piece
// may be smaller. A piece is valid until put returns.
func EachPiece(from io.Reader, put func(start int64, piece []byte) error) error {
	buffer := make([]byte, BlobPiece)
	for start := int64(0); ; {
		n, err := io.ReadFull(from, buffer)
		if n > 0 {
			if err := put(start, buffer[:n]); err != nil {
				return err
			}
			start += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// EachChunk is ReadBlob for bytes in chunks. read returns the last chunk that starts at an offset or before it;
// no data if there is none. NotFound (BLOB_NOT_FOUND).
func EachChunk(offset, length int64, read func(at int64) (start int64, data []byte, err error), each func([]byte) error) error {
	for at, end := offset, offset+length; at < end; {
		start, data, err := read(at)
		if err != nil {
			return err
		}
		if start > at || at-start >= int64(len(data)) {
			return BlobNotFound()
		}
		piece := data[at-start : min(int64(len(data)), end-start)]
		if err := each(piece); err != nil {
			return err
		}
		at += int64(len(piece))
	}
	return nil
}
