package mcptool

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// repeated repeats a text up to a number of bytes, and counts them.
type repeated struct {
	head, text string
	left       int
	read       int
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	source := r.text[r.read%len(r.text):]
	if r.head != "" {
		source = r.head
	}
	n := copy(p[:min(len(p), r.left)], source)
	if r.head != "" {
		r.head = r.head[n:]
	} else {
		r.read += n
	}
	r.left -= n
	return n, nil
}

// take reads to the end and returns the number of bytes.
func take(t *testing.T, r io.Reader) (int64, error) {
	t.Helper()
	return io.Copy(io.Discard, r)
}

func TestAMessageOfAChildIsCutWhenItIsTooLarge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		head, text, want string
		most             int // bytes read from the child
	}{
		"on one line":    {`{"x":"`, "xxxxxxxxxxxxxxxx", "more than 16777216 bytes", maxMessage + 2*frameBuffer},
		"on many lines":  {`{"x":[` + "\n", "1,\n", "not JSON", 2 * frameBuffer},
		"no JSON at all": {"", "listening\n", `not JSON to its standard output, which is for messages only: "listening"`, 2 * frameBuffer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			life, fail := context.WithCancelCause(t.Context())
			source := &repeated{head: test.head, text: test.text, left: 64 << 20}
			passed, err := take(t, newFrames(io.NopCloser(source), fail))
			if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(context.Cause(life), err) {
				t.Errorf("read = %v, the session's end = %v, want %s", err, context.Cause(life), test.want)
			}
			if passed > 0 || source.read > test.most {
				t.Errorf("%d bytes were read and %d came through, want at most %d, and none", source.read, passed, test.most)
			}
		})
	}
}

func TestMessagesOfAChildComeOnePerLine(t *testing.T) {
	t.Parallel()
	life, fail := context.WithCancelCause(t.Context())
	got, err := io.ReadAll(newFrames(io.NopCloser(strings.NewReader("{\"a\":1} \r\n\n  \n[2]\n{\"b\":3}")), fail))
	if want := "{\"a\":1}\n[2]\n{\"b\":3}\n"; err != nil || string(got) != want || life.Err() != nil {
		t.Errorf("got %q, %v, %v, want %q", got, err, life.Err(), want)
	}
	many := &repeated{text: `{"x":"` + strings.Repeat("x", 4000) + "\"}\n", left: 40 << 20}
	if passed, err := take(t, newFrames(io.NopCloser(many), fail)); passed < 39<<20 || err != nil {
		t.Errorf("%d bytes came through, %v, want all whole messages", passed, err)
	}
}

func TestAnEventIsCutWhenItIsTooLarge(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"on one line": "x", "on many lines": "data: 1,\n", "of comments": ": x\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			life, fail := context.WithCancelCause(t.Context())
			source := &repeated{head: "data: [\n", text: text, left: 64 << 20}
			passed, err := take(t, newEvents(io.NopCloser(source), fail))
			if !errors.Is(err, errMessageTooLarge) || !errors.Is(context.Cause(life), errMessageTooLarge) {
				t.Errorf("read = %v, the session's end = %v, want both too large", err, context.Cause(life))
			}
			if passed > maxMessage {
				t.Errorf("%d bytes came through, want at most %d", passed, maxMessage)
			}
		})
	}
	for text, event := range map[string]string{"data: {\"a\":\ndata: 1}\n\n": "data: {\"a\": 1}\n\n", "data: 1\r\n\r\n": "data: 1\n\n"} {
		life, fail := context.WithCancelCause(t.Context())
		const count = 2 << 20
		source := &repeated{text: text, left: count * len(text)}
		end := len("\n") // of the stream
		if passed, err := take(t, newEvents(io.NopCloser(source), fail)); passed != int64(count*len(event)+end) || err != nil || life.Err() != nil {
			t.Errorf("%q: %d bytes came through, %v, want all of many small events", text, passed, err)
		}
	}
}
