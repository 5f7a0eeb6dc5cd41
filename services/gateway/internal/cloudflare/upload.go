package cloudflare

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// upload is a frame while it arrives. The files of a message must not be held in memory, so it reads as
// the text of init.body alone, without the escapes of JSON. It keeps the rest of the frame.
type upload struct {
	from  *bufio.Reader
	max   int64  // bytes of the rest
	rest  []byte // of the frame, with an empty init.body
	begun bool   // the body has begun
	ended bool   // the body has ended
	size  int    // of the body so far

	depth  int
	inInit bool
	text   []byte // the last string outside of the body, of at most maxKey bytes
	key    string
	rune   []byte // encoded, to be read
}

// maxKey bounds the keys that upload looks for.
const maxKey = 8

// receive reads a frame. extract reads its body, and returns it without the files, which it stores. files
// reports whether there were any. If extract returns a fault and the body, receive returns the fault with the
// frame. body is nil if the frame has none. TooLarge (FRAME_TOO_LARGE).
func receive(message io.Reader, maxBytes int64, extract func(io.Reader) ([]byte, error)) (rest, body []byte, files bool, err error) {
	u := &upload{from: bufio.NewReader(message), max: maxBytes}
	if err := u.skip(); ignoreEOF(err) != nil {
		return nil, nil, false, err
	}
	if !u.begun {
		return u.rest, nil, false, nil
	}
	body, failed := extract(u)
	if body == nil && failed != nil {
		return nil, nil, false, failed
	}
	if _, err := io.Copy(io.Discard, u); err != nil {
		return nil, nil, false, err
	}
	if err := u.skip(); ignoreEOF(err) != nil {
		return nil, nil, false, err
	}
	return u.rest, body, len(body) < u.size, failed
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// skip keeps the frame up to the text of its body. It returns EOF at the end of the frame.
func (u *upload) skip() error {
	for {
		b, err := u.keep()
		if err != nil {
			return err
		}
		switch b {
		case '{', '[':
			u.depth++
			u.inInit = u.inInit || u.depth == 2 && u.key == "init"
			u.key = ""
		case '}', ']':
			u.depth--
			u.inInit = u.inInit && u.depth >= 2
		case ':':
			u.key = string(u.text)
		case ',':
			u.key = ""
		case '"':
			if u.inInit && u.depth == 2 && u.key == "body" && !u.begun {
				u.begun = true
				return nil
			}
			if err := u.keepString(); err != nil {
				return err
			}
		}
	}
}

// keep keeps a byte.
func (u *upload) keep() (byte, error) {
	b, err := u.from.ReadByte()
	if err != nil {
		return 0, err
	}
	if int64(len(u.rest)) >= u.max {
		return 0, fault.New(fault.TooLarge, "FRAME_TOO_LARGE", "a frame may have at most %d bytes without its files", u.max)
	}
	u.rest = append(u.rest, b)
	return b, nil
}

// keepString keeps a string that has begun.
func (u *upload) keepString() error {
	u.text = u.text[:0]
	for {
		b, err := u.keep()
		switch {
		case err != nil:
			return err
		case b == '"':
			return nil
		case b == '\\':
			if _, err := u.keep(); err != nil {
				return err
			}
		}
		if len(u.text) < maxKey {
			u.text = append(u.text, b)
		}
	}
}

// Read implements io.Reader for the body.
func (u *upload) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(u.rune) == 0 {
			if err := u.next(); err != nil {
				return n, err
			}
		}
		took := copy(p[n:], u.rune)
		n, u.size, u.rune = n+took, u.size+took, u.rune[took:]
		if n > 0 && u.from.Buffered() == 0 {
			return n, nil // the rest has not arrived
		}
	}
	return n, nil
}

// next takes the next byte of the body, or the character of an escape.
func (u *upload) next() error {
	if u.ended {
		return io.EOF
	}
	b, err := u.body()
	switch {
	case err != nil:
		return err
	case b == '"':
		u.ended, u.rest = true, append(u.rest, b)
		return io.EOF
	case b == '\\':
		return u.escape()
	}
	u.rune = append(u.rune[:0], b)
	return nil
}

// body reads a byte of the body, which must not end here.
func (u *upload) body() (byte, error) {
	b, err := u.from.ReadByte()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// escapes are the characters of the short escapes.
var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape takes the character of an escape that has begun.
func (u *upload) escape() error {
	b, err := u.body()
	if err != nil {
		return err
	}
	if short, ok := escapes[b]; ok {
		u.rune = append(u.rune[:0], short)
		return nil
	}
	if b != 'u' {
		return errEscape
	}
	r, err := u.hex()
	if err != nil {
		return err
	}
	if next, err := u.from.Peek(escapeBytes); utf16.IsSurrogate(r) && err == nil && string(next[:2]) == `\u` {
		if low, err := parseHex(next[2:]); err == nil && utf16.DecodeRune(r, low) != utf8.RuneError {
			r = utf16.DecodeRune(r, low)
			_, _ = u.from.Discard(escapeBytes) // peeked
		}
	}
	u.rune = utf8.AppendRune(u.rune[:0], r)
	return nil
}

// errEscape says that a frame is not JSON.
var errEscape = errors.New("an escape of a frame is not valid")

// hex reads the four digits of an escape.
func (u *upload) hex() (rune, error) {
	var digits [4]byte
	for i := range digits {
		b, err := u.body()
		if err != nil {
			return 0, err
		}
		digits[i] = b
	}
	return parseHex(digits[:])
}

// escapeBytes is the size of an escape with four digits.
const escapeBytes = 6

func parseHex(digits []byte) (rune, error) {
	n, err := strconv.ParseUint(string(digits), 16, 16)
	if err != nil {
		return 0, errEscape
	}
	return rune(n), nil
}
