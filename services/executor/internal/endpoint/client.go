package endpoint

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/pkg/webhook"
	"github.com/holdfast-run/holdfast/services/executor/internal/taskgroup"
)

// Version is the version of the wire.
const Version = 1

// DefaultCalls is Config.Calls if it is 0.
const DefaultCalls = 256

// Config is how an endpoint is reached.
type Config struct {
	// URL is http or https, without credentials and fragment.
	URL string
	// Secrets sign each request. Only an endpoint on this machine may have none.
	Secrets []webhook.Secret
	// Headers are sent with each request, for a proxy before the application.
	Headers map[string]string
	// TLS has the client's certificate, and the authorities that it trusts; nil for the defaults.
	TLS *tls.Config
	// Policy lists the hosts that may be called.
	Policy outbound.Policy
	// Calls limits the calls in progress; 0 means DefaultCalls.
	Calls int
}

// Peers are the dependencies of a client. Nil fields have a default.
type Peers struct {
	Log    *slog.Logger     // nil is slog.Default
	Now    func() time.Time // nil is time.Now
	NewID  func() string    // of requests; nil returns random ids
	Jitter func() float64   // in [0, 1); nil is random
}

// Client calls one endpoint. Safe for concurrent use.
type Client struct {
	config Config
	name   string // the URL without its query, for texts
	peers  Peers
	http   *http.Client
	slots  chan struct{}
	ends   taskgroup.Group // of answers
}

// New returns the client of an endpoint. Invalid (ENDPOINT_INVALID): the detail has one line for each mistake, beginning with
// the field, as in "url: …".
func New(c Config, p Peers) (*Client, error) {
	var mistakes []string
	mistake := func(format string, args ...any) { mistakes = append(mistakes, fmt.Sprintf(format, args...)) }
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		mistake("url: it must begin with https:// or http:// and a host")
	case u.User != nil:
		mistake("url: it must not hold credentials; use headers")
	case u.Fragment != "":
		mistake("url: it must not have a fragment")
	default:
		if err := c.Policy.Allows(u); err != nil {
			mistake("url: %v", err)
		}
		if len(c.Secrets) == 0 && !outbound.IsLoopback(u.Hostname()) {
			mistake("secrets: an endpoint on another machine needs at least one, so that it can tell this executor from others")
		}
	}
	for name, value := range c.Headers {
		switch canonical := http.CanonicalHeaderKey(name); {
		case reserved[canonical]:
			mistake("headers.%s: the header is reserved; leave it out", name)
		case name == "" || strings.ContainsFunc(name, isNoToken) || strings.ContainsFunc(value, isNoText):
			mistake("headers.%s: a header has a name of letters, digits and -, and a value without control characters", name)
		}
	}
	if len(mistakes) > 0 {
		return nil, fault.New(fault.Invalid, "ENDPOINT_INVALID", "%s", strings.Join(mistakes, "\n"))
	}
	c.Calls = cmp.Or(c.Calls, DefaultCalls)
	u.RawQuery = ""
	return &Client{
		config: c, name: u.String(), peers: p.withDefaults(), http: c.Policy.Direct(c.TLS, c.Calls+1), // one for the description
		slots: make(chan struct{}, c.Calls),
	}, nil
}

func (p Peers) withDefaults() Peers {
	p.Log = cmp.Or(p.Log, slog.Default())
	if p.Now == nil {
		p.Now = time.Now
	}
	if p.NewID == nil {
		p.NewID = func() string { return "msg_" + rand.Text() }
	}
	if p.Jitter == nil {
		p.Jitter = mathrand.Float64
	}
	return p
}

// reserved are the headers that the client sets itself.
var reserved = map[string]bool{
	"Host": true, "Content-Length": true, "Content-Type": true, "Content-Encoding": true, "Transfer-Encoding": true, "Connection": true,
	"Accept": true, "Accept-Encoding": true, "If-None-Match": true, "Traceparent": true, "Tracestate": true,
	"Holdfast-Endpoint": true, webhook.IDHeader: true, webhook.TimestampHeader: true, webhook.SignatureHeader: true,
	"Idempotency-Key": true, "X-Idempotency-Key": true, // net/http would repeat a request with one
}

func isNoToken(c rune) bool {
	return c > 0x7e || !(unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("!#$%&'*+-.^_`|~", c))
}

func isNoText(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

// Name is the URL of the endpoint without its query.
func (c *Client) Name() string { return c.name }

// Close closes idle connections. Calls in progress go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Wait waits for the ends of answers whose results have arrived, and reports whether they came within the limit.
func (c *Client) Wait(limit time.Duration) bool { return c.ends.Wait(limit) }

// An unsentError means that the application has not executed the request.
type unsentError struct {
	err   error
	after time.Duration // that the endpoint asks to wait; 0 for none
}

func (e *unsentError) Error() string { return e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

// A cutError means that the answer to a request has no last line: the application may have executed it.
type cutError struct{ err error }

func (e *cutError) Error() string { return e.err.Error() }
func (e *cutError) Unwrap() error { return e.err }

// send sends a signed request. ctx bounds the answer too. The error is an *unsentError or a *cutError.
func (c *Client) send(ctx context.Context, method string, body []byte, header http.Header) (*http.Response, error) {
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { sent.Store(false) }, // again if net/http has written nothing to a closed connection
		WroteHeaders: func() { sent.Store(true) },
	})
	request, err := http.NewRequestWithContext(ctx, method, c.config.URL, bytes.NewReader(body))
	if err != nil {
		return nil, &unsentError{err: err}
	}
	request.Header = header
	for name, value := range c.config.Headers {
		header.Set(name, value)
	}
	header.Set("User-Agent", "holdfast")
	header.Set("Holdfast-Endpoint", fmt.Sprint(Version))
	if traceparent, tracestate := telemetry.Traceparent(ctx); traceparent != "" {
		header.Set("Traceparent", traceparent)
		if tracestate != "" {
			header.Set("Tracestate", tracestate)
		}
	}
	webhook.Sign(header, c.peers.NewID(), c.peers.Now(), body, c.config.Secrets...)
	response, err := c.http.Do(request)
	if err == nil {
		return response, nil
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the URL, whose query may hold secrets
	}
	if sent.Load() {
		return nil, &cutError{err}
	}
	return nil, &unsentError{err: err}
}

// maxErrorBody bounds what is read of an answer without a result.
const maxErrorBody = 64 << 10

// readSome reads the beginning of a body.
func readSome(body io.Reader) []byte {
	text, _ := io.ReadAll(io.LimitReader(body, maxErrorBody)) // what has arrived says enough
	return text
}
