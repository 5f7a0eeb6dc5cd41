package files

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// ReadBody decodes the body of a request into target, with references to the files of its messages. TooLarge (BODY_TOO_LARGE,
// FILE_TOO_LARGE), Invalid (BODY_INVALID, FILE_INVALID), Exhausted (TOO_MANY_FILES, BODY_MEMORY_FULL), or a fault of target's
// UnmarshalJSON.
func (f *Files) ReadBody(ctx context.Context, w http.ResponseWriter, r *http.Request, tenant string, target any) error {
	extend := extender(w)
	progress := func() error { return extend(f.policy.Now().Add(f.limits.Timeout)) }
	if err := progress(); err != nil {
		return err
	}
	reservation := f.limits.Bodies.Reserve(tenant)
	defer reservation.Release()
	text, err := f.extract(ctx, tenant, http.MaxBytesReader(w, r.Body, f.limits.Body), progress, false, reservation)
	if err != nil {
		return err
	}
	if err := extend(time.Time{}); err != nil { // it would end the connection during a long answer
		return err
	}
	return httpapi.DecodeJSON(text, target)
}

// extender returns a function that moves the deadline for the body of a request.
func extender(w http.ResponseWriter) func(until time.Time) error {
	control := http.NewResponseController(w)
	return func(until time.Time) error {
		if err := control.SetReadDeadline(until); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		return nil
	}
}

// ExtractAll is Extract for a transport that has to know who asks: after a fault of a file it reads on, and returns
// the text with the fault.
func (f *Files) ExtractAll(ctx context.Context, tenant string, from io.Reader, progress func() error) ([]byte, error) {
	reservation := f.limits.Bodies.Reserve(tenant)
	defer reservation.Release()
	return f.extract(ctx, tenant, from, progress, true, reservation)
}

// Extract reads a JSON text with messages, and returns it with references to their files: the values of the url of the parts of
// messages, and of message. It calls progress after each file and after each progressBytes. The faults are those of ReadBody. It
// does not validate the text.
func (f *Files) Extract(ctx context.Context, tenant string, from io.Reader, progress func() error) ([]byte, error) {
	reservation := f.limits.Bodies.Reserve(tenant)
	defer reservation.Release()
	return f.extract(ctx, tenant, from, progress, false, reservation)
}

func (f *Files) extract(
	ctx context.Context, tenant string, from io.Reader, progress func() error, readOn bool, reservation *httpapi.Reservation,
) ([]byte, error) {
	counted := &countingReader{from: from, progress: progress}
	b := &body{
		Files: f, ctx: ctx, tenant: tenant, progress: progress, src: bufio.NewReaderSize(counted, readBytes),
		file: &content{files: f, tenant: tenant}, readOn: readOn, reservation: reservation,
	}
	defer b.file.release()
	err := b.copy()
	switch _, large := errors.AsType[*http.MaxBytesError](err); {
	case large:
		return nil, fault.New(fault.TooLarge, "BODY_TOO_LARGE",
			"a request with files may have at most %d bytes; send the last message only, or raise HOLDFAST_GATEWAY_MAX_UPLOAD_BYTES", f.limits.Body).
			WithSizes(0, f.limits.Body)
	case err == nil || errors.Is(err, io.EOF):
		return b.out, b.failed
	case errors.Is(err, errSource):
		return nil, fault.New(fault.Invalid, "BODY_INVALID", "the body is incomplete")
	default:
		return nil, err
	}
}

// readBytes is how much of a body is read at once.
const readBytes = 64 << 10

// progressBytes have to arrive within Limits.Timeout. Slow uplinks manage it, and clients with single bytes do not.
const progressBytes = 256 << 10

// errSource marks errors of the connection.
var errSource = errors.New("the body cannot be read")

// countingReader calls progress after each progressBytes. Its errors are EOF, MaxBytesError and errSource.
type countingReader struct {
	from     io.Reader
	since    int64 // bytes since the last progress
	progress func() error
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if c.since += int64(n); c.since >= progressBytes {
		c.since = 0
		if err := c.progress(); err != nil {
			return n, err
		}
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); err != nil && !large && !errors.Is(err, io.EOF) {
		err = errors.Join(errSource, err)
	}
	return n, err
}

// location is where a value is in the body.
type location uint8

// The locations on the way to the URL of a file.
const (
	elsewhere location = iota
	root
	messages
	message
	parts
	part
	url
)

// value returns the location of the value of a key in an object.
func (l location) value(key string) location {
	switch {
	case l == root && key == "messages":
		return messages
	case l == root && key == "message":
		return message
	case l == message && key == "parts":
		return parts
	case l == part && key == "url":
		return url
	default:
		return elsewhere
	}
}

// entry returns the location of the entries of a list.
func (l location) entry() location {
	switch l {
	case messages:
		return message
	case parts:
		return part
	default:
		return elsewhere
	}
}

// maxNesting is that of encoding/json.
const maxNesting = 10_000

// open is an object or list that has begun.
type open struct {
	object bool
	at     location
	next   location // of the next value
	isKey  bool     // the next text is a key
}

// body copies a JSON text, without the files in it.
type body struct {
	*Files
	ctx         context.Context //nolint:containedctx // of the call
	tenant      string
	progress    func() error
	src         *bufio.Reader
	out         []byte
	stack       []open
	file        *content
	reservation *httpapi.Reservation
	count       int   // of files
	readOn      bool  // reads on after a fault of a file
	failed      error // the first fault of a file, if readOn is set
}

// copy copies to the end. It returns EOF at any end: the decoder of the text finds what is missing.
func (b *body) copy() error {
	for {
		c, err := b.src.ReadByte()
		if err != nil {
			return err
		}
		if c != '"' {
			if err := b.structure(c); err != nil {
				return err
			}
			continue
		}
		switch top := b.top(); {
		case top.isKey:
			key, err := b.text()
			if err != nil {
				return err
			}
			if top.at != elsewhere {
				top.next = top.at.value(unquote(key))
			}
		case top.next == url:
			err = b.url()
		default:
			_, err = b.text()
		}
		if err != nil {
			return err
		}
	}
}

// top returns the innermost open object or list.
func (b *body) top() *open {
	if len(b.stack) == 0 {
		return &open{next: root}
	}
	return &b.stack[len(b.stack)-1]
}

// structure copies a byte outside of texts.
func (b *body) structure(c byte) error {
	top := b.top()
	switch c {
	case '{', '[':
		if len(b.stack) == maxNesting {
			return fault.New(fault.Invalid, "BODY_INVALID", "the body is nested deeper than %d", maxNesting)
		}
		o := open{object: c == '{', isKey: c == '{', at: top.next}
		if c == '[' {
			o.next = o.at.entry()
		}
		b.stack = append(b.stack, o)
	case '}', ']':
		b.stack = b.stack[:max(len(b.stack)-1, 0)]
	case ',':
		top.isKey = top.object
	case ':':
		top.isKey = false
	}
	return b.add(c)
}

// add copies bytes. TooLarge (BODY_TOO_LARGE), Exhausted (BODY_MEMORY_FULL).
func (b *body) add(p ...byte) error {
	if int64(len(b.out)+len(p)) > b.limits.Text {
		return fault.New(
			fault.TooLarge,
			"BODY_TOO_LARGE",
			"a request may have at most %d bytes without its files; send the last message only, or raise HOLDFAST_GATEWAY_MAX_BODY_BYTES",
			b.limits.Text,
		).
			WithSizes(0, b.limits.Text)
	}
	if len(b.out)+len(p) > cap(b.out) {
		if err := b.reservation.Grow(int64(len(b.out) + len(p))); err != nil {
			return err
		}
	}
	b.out = append(b.out, p...)
	return nil
}

// text copies a text behind its first quote, and returns it with its quotes. It is valid until the next copy.
func (b *body) text() ([]byte, error) {
	begin := len(b.out)
	if err := b.add('"'); err != nil {
		return nil, err
	}
	for {
		plain, c, err := b.run()
		if err != nil {
			return nil, err
		}
		if err := errors.Join(b.add(plain...), b.skip(len(plain))); err != nil {
			return nil, err
		}
		switch c {
		case '"':
			err = errors.Join(b.skip(1), b.add('"'))
			return b.out[begin:], err
		case '\\':
			escape, err := b.src.Peek(2)
			if err == nil {
				err = errors.Join(b.add(escape...), b.skip(2))
			}
			if err != nil {
				return nil, err
			}
		}
	}
}

// run returns the next bytes of a text without quotes and backslashes, and the quote or backslash behind them; 0 if it is not
// known yet. They are valid until the next read, and are not skipped.
func (b *body) run() (plain []byte, next byte, err error) {
	if _, err := b.src.Peek(1); err != nil {
		return nil, 0, err
	}
	plain, err = b.src.Peek(b.src.Buffered())
	for at, c := range plain {
		if c == '"' || c == '\\' {
			return plain[:at], c, err
		}
	}
	return plain, 0, err
}

func (b *body) skip(n int) error {
	_, err := b.src.Discard(n)
	return err
}

// unquote returns the value of a key; "" for an invalid one.
func unquote(quoted []byte) (text string) {
	if json.Unmarshal(quoted, &text) != nil {
		return ""
	}
	return text
}

// url copies the URL of a part. It stores the file of a large data: URL, and writes the reference.
func (b *body) url() error {
	var start []byte // of the URL
	for {
		plain, next, err := b.run()
		if err != nil {
			return err
		}
		plain = plain[:min(len(plain), max(inlineURL+1-len(start), 0))]
		start = append(start, plain...)
		if err := b.skip(len(plain)); err != nil {
			return err
		}
		switch {
		case len(start) > inlineURL && isDataURL(string(start[:len(dataScheme)])):
			return b.dataURL(start)
		case len(start) > inlineURL:
			return b.longURL(start)
		case next == '"' && b.nextIs('"'):
			if err := b.skip(1); err != nil {
				return err
			}
			return b.addText(reference(string(start)))
		case next == '\\' && b.nextIs('\\'):
			if start, err = b.appendEscape(start); err != nil {
				return err
			}
		}
	}
}

// nextIs reports whether the next byte is c. It has been read.
func (b *body) nextIs(c byte) bool {
	next, err := b.src.Peek(1)
	return err == nil && next[0] == c
}

// addText copies a text read without its quotes.
func (b *body) addText(text string) error {
	quoted, err := json.Marshal(text)
	if err != nil {
		return err
	}
	return b.add(quoted...)
}

// appendEscape reads an escape, or two that are one character, and appends the escaped bytes. Invalid (BODY_INVALID).
func (b *body) appendEscape(to []byte) ([]byte, error) {
	escape, err := b.src.Peek(len(`\uD83D\uDE00`))
	switch {
	case len(escape) < len(`\n`):
		return nil, err
	case escape[1] != 'u':
		escape = escape[:len(`\n`)]
	case len(escape) < len(`\uXXXX`):
		return nil, err
	case len(escape) < len(`\uD83D\uDE00`) || string(escape[6:8]) != `\u` || escape[2] != 'd' && escape[2] != 'D':
		escape = escape[:len(`\uXXXX`)]
	}
	var plain string
	if json.Unmarshal(append(append([]byte{'"'}, escape...), '"'), &plain) != nil {
		return nil, fault.New(fault.Invalid, "BODY_INVALID", "the body is not JSON: a url has the escape %q", escape)
	}
	return append(to, plain...), b.skip(len(escape))
}

// longURL copies the rest of a long URL other than a data: URL.
func (b *body) longURL(start []byte) error {
	start, cut := cutRune(start)
	if err := b.addText(string(bytes.ToValidUTF8(start, []byte(string(utf8.RuneError))))); err != nil {
		return err
	}
	b.out = append(b.out[:len(b.out)-1], cut...) // without the last quote
	begin := len(b.out)
	if _, err := b.text(); err != nil {
		return err
	}
	b.out = append(b.out[:begin], b.out[begin+1:]...) // the first quote of the rest
	return nil
}

// cutRune cuts an incomplete character from the end of a text.
func cutRune(text []byte) (complete, cut []byte) {
	for at := len(text) - 1; at >= max(0, len(text)-utf8.UTFMax); at-- {
		if utf8.RuneStart(text[at]) {
			if utf8.FullRune(text[at:]) {
				at = len(text)
			}
			return text[:at], text[at:]
		}
	}
	return text, nil
}

// dataURL stores the file of a data: URL that begins with start, and writes the reference.
func (b *body) dataURL(start []byte) error {
	b.count++
	b.file.size = 0 // its memory is used again
	d := &dataURL{to: b.file}
	var failed error
	if b.count > b.limits.Files {
		failed = fault.New(fault.TooLarge, "BODY_TOO_LARGE",
			"a request may have at most %d files; send the last message only, or raise HOLDFAST_GATEWAY_MAX_FILES", b.limits.Files)
	}
	decode := func(p []byte) error {
		if failed == nil {
			_, failed = d.Write(p)
		}
		if b.readOn {
			return nil
		}
		return failed
	}
	if err := b.rest(start, decode); err != nil {
		return err
	}
	id := ""
	if failed == nil {
		id, failed = b.storeFile(d)
	}
	if failed != nil && !b.readOn {
		return failed
	}
	b.failed = cmp.Or(b.failed, failed)
	return b.addText(eventv1.FileURL(id))
}

// rest calls decode with the rest of a text without escapes, start first.
func (b *body) rest(start []byte, decode func([]byte) error) error {
	for next := byte(0); next != '"'; {
		if err := decode(start); err != nil {
			return err
		}
		plain, end, err := b.run()
		if err != nil {
			return err
		}
		if err := cmp.Or(decode(plain), b.skip(len(plain))); err != nil {
			return err
		}
		start, next = start[:0], end
		if end == '\\' {
			if start, err = b.appendEscape(start); err != nil {
				return err
			}
		}
	}
	return b.skip(1)
}

func (b *body) storeFile(d *dataURL) (id string, err error) {
	if err := d.end(); err != nil {
		return "", err
	}
	file, err := b.store(b.ctx, b.tenant, d.mediaType, b.file)
	if err != nil {
		return "", err
	}
	return file.GetFileId(), b.progress()
}
