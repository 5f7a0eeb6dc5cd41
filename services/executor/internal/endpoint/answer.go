package endpoint

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// Limits of an answer.
const (
	MaxLine   = 2 << 20  // bytes, with the newline
	MaxAnswer = 16 << 20 // bytes of all lines
	// MaxSilence is the longest time without a line. An application sends a ping if it has nothing else to send.
	MaxSilence = 45 * time.Second
)

// endTime is how long the end of an answer may come after its result, for the connection to be used again.
const endTime = time.Second

// Reasons of cut answers.
var (
	errSilent  = fmt.Errorf("no line has come for %v", MaxSilence)
	errNoEnd   = errors.New("the answer has ended without a result")
	errTooLong = fmt.Errorf("the answer has more than %d bytes", MaxAnswer)
	errLine    = fmt.Errorf("a line of the answer has more than %d bytes", MaxLine)
)

// A Failure is the error with which an application has ended a call.
type Failure struct {
	Code          string `json:"code"` // may be empty
	Message       string `json:"message"`
	PublicMessage string `json:"publicMessage"` // for users; empty if they read Message
}

func (f *Failure) Error() string {
	if f.Message == "" {
		return "the application has given no reason"
	}
	return f.Message
}

// A refusalError is an answer with another status than 200. The application has not executed the request.
type refusalError struct {
	status  int
	failure Failure // as far as the answer has one
}

func (e *refusalError) Error() string {
	text := fmt.Sprintf("the endpoint has answered with HTTP status %d", e.status)
	switch {
	case e.failure.Code != "" && e.failure.Message != "":
		return fmt.Sprintf("%s (%s): %s", text, e.failure.Code, e.failure.Message)
	case e.failure.Message != "":
		return text + ": " + e.failure.Message
	case e.status >= 300 && e.status < 400:
		return text + ": redirects are not followed; name the address to which it leads"
	}
	return text
}

// refusal reads an answer with another status than 200.
func refusal(response *http.Response) *refusalError {
	var body struct {
		Error Failure `json:"error"`
	}
	_ = json.Unmarshal(readSome(response.Body), &body) // a proxy answers with anything
	return &refusalError{response.StatusCode, body.Error}
}

// attempt sends one request and takes the lines of its answer. The error is an *unsentError, a *cutError, a *refusalError, a
// *Failure, or comes from take.
func (c *Client) attempt(ctx context.Context, body []byte, take func(ctx context.Context, line map[string]json.RawMessage) error,
) (result json.RawMessage, err error) {
	// A caller ends its context once it has the result. The answer's own end may then still be on its way.
	answering, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	release := func() {
		unlink()
		cancel(nil)
		<-c.slots
	}
	response, err := c.send(answering, http.MethodPost, body, http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/x-ndjson"},
	})
	if err != nil {
		release()
		return nil, err
	}
	if err := accept(response); err != nil {
		_ = response.Body.Close()
		release()
		return nil, err
	}
	lines := bufio.NewReader(response.Body)
	silence := time.AfterFunc(MaxSilence, func() { cancel(errSilent) })
	result, err = readLines(lines, func(line map[string]json.RawMessage) error {
		silence.Stop() // while a slow reader of the session takes the line
		defer silence.Reset(MaxSilence)
		return take(ctx, line)
	})
	silence.Stop()
	if err != nil && !errors.Is(err, agent.Later) {
		if _, cut := errors.AsType[*cutError](err); cut && answering.Err() != nil {
			err = &cutError{context.Cause(answering)}
		}
		_ = response.Body.Close() // and the connection
		release()
		return nil, err
	}
	unlink()
	c.ends.Go(func() {
		timer := time.AfterFunc(endTime, func() { cancel(nil) })
		defer timer.Stop()
		_, _ = io.CopyN(io.Discard, lines, maxErrorBody) // nothing behind the result counts
		_ = response.Body.Close()
		release()
	})
	return result, err
}

// accept returns an error for an answer that has no lines.
func accept(response *http.Response) error {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")) // an invalid content type is another one
	encoding := response.Header.Get("Content-Encoding")
	switch status := response.StatusCode; {
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return &unsentError{err: refusal(response), after: retryAfter(response.Header.Get("Retry-After"))}
	case status != http.StatusOK:
		refused := refusal(response)
		if status >= 500 && refused.failure.Message == "" { // of a proxy that has lost the application
			return &cutError{refused}
		}
		return refused
	case kind != "application/x-ndjson":
		return &cutError{fmt.Errorf("the answer has the content type %.100q; it must be application/x-ndjson", kind)}
	case encoding != "" && encoding != "identity":
		return &cutError{fmt.Errorf("the answer is encoded as %.100q; it must not be encoded", encoding)}
	}
	return nil
}

// maxRetryAfter bounds the wait for which an endpoint may ask.
const maxRetryAfter = time.Minute

func retryAfter(text string) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, int(maxRetryAfter/time.Second))) * time.Second
	}
	return 0
}

// readLines reads the lines of an answer up to its result. The error is a *cutError, a *Failure, or comes from take.
func readLines(lines *bufio.Reader, take func(map[string]json.RawMessage) error) (json.RawMessage, error) {
	for total := 0; ; {
		text, err := readLine(lines)
		if err != nil {
			return nil, &cutError{err}
		}
		if total += len(text); total > MaxAnswer {
			return nil, &cutError{errTooLong}
		}
		var line map[string]json.RawMessage
		if err := json.Unmarshal(text, &line); err != nil || len(line) != 1 {
			return nil, &cutError{fmt.Errorf("a line of the answer is no JSON object with one member: %.100q", bytes.TrimSpace(text))}
		}
		if result, ok := line["result"]; ok {
			return result, nil
		}
		if text, ok := line["error"]; ok {
			var f Failure
			if err := json.Unmarshal(text, &f); err != nil {
				return nil, &cutError{errors.New("the error of the answer is no object with a message")}
			}
			return nil, &f
		}
		if err := take(line); err != nil {
			return nil, err
		}
	}
}

// readLine reads a line with its newline.
func readLine(lines *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		piece, err := lines.ReadSlice('\n')
		if len(text)+len(piece) > MaxLine {
			return nil, errLine
		}
		switch {
		case err == nil && text == nil:
			return piece, nil
		case err == nil:
			return append(text, piece...), nil
		case errors.Is(err, bufio.ErrBufferFull):
			text = append(text, piece...)
		case errors.Is(err, io.EOF):
			return nil, errNoEnd
		default:
			return nil, err
		}
	}
}
