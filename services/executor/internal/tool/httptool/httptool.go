package httptool

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/pkg/webhook"
)

// Body selects the content of a request.
type Body string

// The bodies.
const (
	// BodyInput is the whole input as JSON.
	BodyInput Body = "input"
	BodyNone  Body = "none"
)

// Result selects the conversion of a response.
type Result string

// The results.
const (
	// ResultAuto is ResultJSON for a JSON content type, otherwise ResultText.
	ResultAuto Result = "auto"
	ResultJSON Result = "json"
	ResultText Result = "text"
)

// DefaultMaxBytes is the default limit on a response.
const DefaultMaxBytes = 1 << 20

// Config describes the request of a tool.
type Config struct {
	// Method defaults to GET.
	Method string
	// URL is absolute, http or https. {name} in its path stands for a required argument, {{name}} for a value of the
	// runtime: see package trusted.
	URL string
	// Query has templates by name, which extend the query of URL. {name} alone may be a list, with one value per
	// element, or missing. {{name}} is a value of the runtime. ${NAME} is resolved.
	Query map[string]string
	// Headers have no arguments. {{name}} is a value of the runtime. ${NAME} is resolved.
	Headers map[string]string
	// Sign, if not nil, signs each request.
	Sign *Sign
	// Body defaults to BodyInput for POST, PUT and PATCH and to BodyNone for other methods.
	Body Body
	// BodyArgument, if set, replaces Body: the argument of this name is the body, in JSON or as a Form. Without it there is no body.
	BodyArgument string `json:"-"`
	// Form, if not nil, makes BodyArgument a form (application/x-www-form-urlencoded). It has the styles of members that are not
	// StyleRepeated.
	Form map[string]Style `json:"-"`
	// Styles are the styles of Query values that are not StyleRepeated.
	Styles map[string]Style `json:"-"`
	// HeaderArguments are headers with the value of an argument, by the name of the header. A missing argument makes no header.
	HeaderArguments map[string]string `json:"-"`
	// Basic, if not nil, authenticates each request.
	Basic *Basic `json:"-"`
	// BodyTemplate replaces Body: JSON with {name} in its texts for arguments. A text that is {name} alone
	// becomes the argument's value; its member is left out if the argument is missing. {{name}} is a value of the runtime.
	BodyTemplate json.RawMessage
	// Success lists the statuses of a success: 204, or 2xx. It defaults to 2xx.
	Success []string
	// Result defaults to ResultAuto.
	Result Result
	// MaxBytes limits the response; 0 means DefaultMaxBytes.
	MaxBytes int
	// ShowErrors shows users the same failures as the model, with the beginning of a failed response.
	// Without it, users see at most its HTTP status.
	ShowErrors bool
}

// Sign signs requests according to Standard Webhooks 1.0.0, as endpoints are called. Each request has an id of its own.
type Sign struct {
	// Secret lists secrets, each of which makes a signature: whsec_ and the base64 of 24 to 64 bytes. ${NAME} is resolved.
	Secret []string
}

// Basic is Basic authentication. ${NAME} is resolved.
type Basic struct{ User, Password string }

// Style is how a list or an object is written in a query or a form.
type Style string

// The styles, for the list 1, 2 under the name a.
const (
	StyleRepeated Style = ""   // a=1&a=2; an object's members are values of their own, in a form a[member]=1
	StyleCommas   Style = ","  // a=1,2
	StyleSpaces   Style = " "  // a=1 2
	StylePipes    Style = "|"  // a=1|2
	StyleBrackets Style = "[]" // a[0]=1&a[1]=2, also nested; an object is a[member]=1
)

// Peers are the dependencies of tools.
type Peers struct {
	// Policy lists the hosts that may be called.
	Policy outbound.Policy
	// Lookup resolves secrets and environment variables by name. Its errors say what to change. Nil resolves none.
	Lookup func(name string) (string, error)
}

// New returns the tool with an Execute that performs the request within the tool's time limit, with the call's
// key in the header Idempotency-Key and with a traceparent. Tools that are Repeatable retry statuses 429 and
// 503. If the tool has LaterWithin, a successful response means that the result comes by callback: see agent.Later.
//
// Invalid (HTTP_TOOL_INVALID): the detail has one line per mistake, beginning with the field, as in "url: …".
func New(t agent.Tool, c Config, p Peers) (agent.Tool, error) {
	b := &builder{config: c, peers: p, properties: properties(t.InputSchema)}
	r := b.request()
	r.safe = t.Repeatable()
	r.later = t.LaterWithin > 0
	if len(b.mistakes) > 0 {
		return t, fault.New(fault.Invalid, "HTTP_TOOL_INVALID", "%s", strings.Join(b.mistakes, "\n"))
	}
	own := slices.AppendSeq(slices.Collect(maps.Keys(r.headers)), maps.Keys(r.taken))
	r.client = p.Policy.Client(append(own, signatureHeaders...))
	r.jitter = rand.Float64
	t.Execute = r.execute
	return t, nil
}

// request is a compiled Config. Safe for concurrent use.
type request struct {
	method   string
	base     url.URL // without path and query
	path     []template
	query    []field
	fixed    string // the query of the URL
	headers  map[string]template
	taken    map[string]string // names of arguments, by header
	secrets  []webhook.Secret  // sign requests
	body     Body
	argument string           // that is the body; empty for none
	form     map[string]Style // nil if the argument is JSON
	template any              // of the body; nil without one
	success  []string
	result   Result
	maxBytes int
	safe     bool
	later    bool // a success means that the result comes by callback
	shown    bool // users see whole errors
	client   *http.Client
	jitter   func() float64 // in [0, 1)
}

// field is a query value.
type field struct {
	name     string
	template template
	style    Style
}

// builder collects the mistakes in a Config.
type builder struct {
	config     Config
	peers      Peers
	properties map[string]bool // nil if the schema does not list them
	mistakes   []string
}

func (b *builder) mistake(field, format string, args ...any) {
	b.mistakes = append(b.mistakes, field+": "+fmt.Sprintf(format, args...))
}

func (b *builder) request() *request {
	c := b.config
	r := &request{
		method: strings.ToUpper(c.Method), headers: map[string]template{}, body: c.Body, success: c.Success, result: c.Result,
		maxBytes: c.MaxBytes, shown: c.ShowErrors, argument: c.BodyArgument, form: c.Form, taken: c.HeaderArguments,
	}
	if r.method == "" {
		r.method = http.MethodGet
	}
	if !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}, r.method) {
		b.mistake("method", "%q is not a method", c.Method)
	}
	b.url(r)
	for _, name := range slices.Sorted(maps.Keys(c.Query)) {
		r.query = append(r.query, field{name, b.value("query."+name, c.Query[name]), c.Styles[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		b.header(r, name, c.Headers[name])
	}
	b.basic(r)
	b.sign(r)
	b.bodyOf(r)
	b.resultOf(r)
	return r
}

// basic makes the header of Basic authentication.
func (b *builder) basic(r *request) {
	if b.config.Basic == nil {
		return
	}
	var text strings.Builder
	write := func(piece string) { text.WriteString(piece) }
	b.expand("basic.user", b.config.Basic.User, write, write)
	if strings.Contains(text.String(), ":") {
		b.mistake("basic.user", "it must not have a colon")
	}
	text.WriteByte(':')
	b.expand("basic.password", b.config.Basic.Password, write, write)
	r.headers["Authorization"] = template{{text: "Basic " + base64.StdEncoding.EncodeToString([]byte(text.String()))}}
}

// signatureHeaders are the headers of a signed request.
var signatureHeaders = []string{webhook.IDHeader, webhook.TimestampHeader, webhook.SignatureHeader}

// sign reads the secrets.
func (b *builder) sign(r *request) {
	const field = "sign.secret"
	if b.config.Sign == nil {
		return
	}
	if len(b.config.Sign.Secret) == 0 {
		b.mistake(field, "it is missing")
	}
	for _, given := range b.config.Sign.Secret {
		before := len(b.mistakes)
		var text strings.Builder
		write := func(piece string) { text.WriteString(piece) }
		b.expand(field, given, write, write)
		secret, err := webhook.ParseSecret(text.String())
		switch f, ok := fault.From(err); {
		case len(b.mistakes) > before: // the text is incomplete
		case ok:
			b.mistake(field, "%s", f.Detail)
		default:
			r.secrets = append(r.secrets, secret)
		}
	}
}

func (b *builder) url(r *request) {
	before, query, _ := strings.Cut(b.config.URL, "?")
	host := before
	if i := strings.Index(before, "://"); i >= 0 {
		if slash := strings.IndexByte(before[i+3:], '/'); slash >= 0 {
			host = before[:i+3+slash]
		}
	}
	u, err := url.Parse(host)
	switch {
	case err != nil || u.Scheme == "" || u.Host == "" || strings.ContainsAny(host, "{}"):
		b.mistake("url", "it must begin with a fixed https://host")
		return
	case u.User != nil:
		b.mistake("url", "it must not hold credentials; use a header")
	case strings.Contains(b.config.URL, "#"):
		b.mistake("url", "it must not have a fragment")
	case strings.ContainsAny(query, "{}"):
		b.mistake("url", "arguments of the query belong under query")
	default:
		if err := b.peers.Policy.Allows(u); err != nil {
			b.mistake("url", "%v", err)
		}
	}
	r.base, r.fixed = *u, query
	path := strings.TrimPrefix(before, host)
	if path == "" {
		return
	}
	for segment := range strings.SplitSeq(path[1:], "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil {
			b.mistake("url", "the segment %q is not escaped correctly", segment)
		}
		r.path = append(r.path, b.template("url", plain))
	}
}

func (b *builder) template(field, text string) template {
	t, err := parseTemplate(text, true)
	if err != nil {
		b.mistake(field, "%v", err)
	}
	b.checkArguments(field, t)
	return t
}

// checkArguments refuses arguments missing in the input schema.
func (b *builder) checkArguments(field string, t template) {
	for _, name := range t.arguments() {
		if b.properties != nil && !b.properties[name] {
			b.mistake(field, "the input schema has no property %q", name)
		}
	}
}

// value parses a template and resolves ${NAME}. A resolved value is plain text, whatever it contains.
func (b *builder) value(field, text string) template {
	var t template
	b.expand(field, text, func(plain string) { t = append(t, b.template(field, plain)...) }, func(secret string) {
		t = append(t, part{text: secret})
	})
	return t
}

// expand splits a text into plain pieces and resolved values of ${NAME}.
func (b *builder) expand(field, text string, plain, found func(string)) {
	for {
		before, rest, more := strings.Cut(text, "${")
		plain(before)
		if !more {
			return
		}
		name, behind, closed := strings.Cut(rest, "}")
		if !closed {
			b.mistake(field, "${ is not closed")
			return
		}
		value, err := "", errors.New("is not available")
		if b.peers.Lookup != nil {
			value, err = b.peers.Lookup(name)
		}
		if err == nil && value == "" {
			err = errors.New("is empty")
		}
		if err != nil {
			b.mistake(field, "the environment variable %s %v", name, err)
		}
		found(value)
		text = behind
	}
}

func (b *builder) header(r *request, name, value string) {
	field := "headers." + name
	canonical := http.CanonicalHeaderKey(name)
	switch canonical {
	case "", "Host", "Content-Length", "Transfer-Encoding", "Connection", "Idempotency-Key", "Traceparent", "Tracestate":
		b.mistake(field, "the header is reserved; leave it out")
		return
	}
	if b.config.Sign != nil && slices.Contains(signatureHeaders, canonical) {
		b.mistake(field, "the header is of the signature; leave it out")
	}
	var t template
	valid := isValidName(name)
	b.expand(field, value, func(plain string) {
		parts, err := parseTemplate(plain, false)
		if err != nil {
			b.mistake(field, "%v", err)
		}
		t = append(t, parts...)
		valid = valid && isHeaderValue(plain)
	}, func(secret string) {
		t = append(t, part{text: secret})
		valid = valid && isHeaderValue(secret)
	})
	if !valid {
		b.mistake(field, "a header has a name of letters, digits and -, and a value without control characters")
	}
	r.headers[canonical] = t
}

func (b *builder) bodyOf(r *request) {
	carries := slices.Contains([]string{"POST", "PUT", "PATCH"}, r.method)
	switch {
	case b.config.BodyTemplate != nil && b.config.Body != "":
		b.mistake("body", "give either one")
	case b.config.BodyTemplate != nil:
		decoder := json.NewDecoder(bytes.NewReader(b.config.BodyTemplate))
		decoder.UseNumber()
		if err := decoder.Decode(&r.template); err != nil || r.template == nil {
			b.mistake("body", "it is not JSON")
			return
		}
		r.template = b.compileBody(r.template)
	case r.body == "" && carries:
		r.body = BodyInput
	case r.body == "":
		r.body = BodyNone
	case r.body != BodyInput && r.body != BodyNone:
		b.mistake("body", "%q is neither input nor none", r.body)
	}
}

func (b *builder) resultOf(r *request) {
	if r.result == "" {
		r.result = ResultAuto
	}
	if !slices.Contains([]Result{ResultAuto, ResultJSON, ResultText}, r.result) {
		b.mistake("result", "%q is not auto, json or text", r.result)
	}
	if r.maxBytes == 0 {
		r.maxBytes = DefaultMaxBytes
	}
	if r.maxBytes < 0 {
		b.mistake("maxBytes", "it is %d, and must be above 0", r.maxBytes)
	}
	if len(r.success) == 0 {
		r.success = []string{"2xx"}
	}
	for _, status := range r.success {
		number := strings.Replace(status, "xx", "00", 1)
		if n, err := strconv.Atoi(number); err != nil || n < 100 || n > 599 || len(status) != 3 {
			b.mistake("success", "%q is not a status; write 204 or 2xx", status)
		}
	}
}

// properties returns the property names of an object schema, or nil if it lists none.
func properties(schema json.RawMessage) map[string]bool {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil || s.Properties == nil {
		return nil
	}
	names := make(map[string]bool, len(s.Properties))
	for name := range s.Properties {
		names[name] = true
	}
	return names
}
