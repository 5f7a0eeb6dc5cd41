package httptool

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/pkg/webhook"
	"github.com/holdfast-run/holdfast/services/executor/internal/trusted"
)

// build builds the request of a call. The error is for the model.
func (r *request) build(ctx context.Context, call *agent.Call) (*http.Request, error) {
	arguments, err := decodeArguments(call.Input)
	if err != nil {
		return nil, err
	}
	v := values{arguments, trusted.Of(call)}
	u, err := r.address(v)
	if err != nil {
		return nil, err
	}
	headers, err := r.header(v)
	if err != nil {
		return nil, err
	}
	body, err := r.content(call.Input, v)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, r.method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the arguments do not form a request")
	}
	if body == nil {
		request.Body, request.GetBody, request.ContentLength = http.NoBody, nil, 0
	} else {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set("Accept", "application/json, text/*;q=0.9, */*;q=0.1")
	request.Header.Set("User-Agent", "holdfast")
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	webhook.Sign(request.Header, rand.Text(), time.Now(), body, r.secrets...)
	if call.IdempotencyKey != "" {
		request.Header[r.keyHeader()] = []string{call.IdempotencyKey}
	}
	if traceparent, tracestate := telemetry.Traceparent(ctx); traceparent != "" {
		request.Header.Set("Traceparent", traceparent)
		if tracestate != "" {
			request.Header.Set("Tracestate", tracestate)
		}
	}
	return request, nil
}

// keyHeader returns the name of the header with the call's key. net/http itself repeats a request with the
// canonical name if its connection breaks before the response. A tool that must not run twice uses another
// spelling, which is equal for servers.
func (r *request) keyHeader() string {
	if r.safe {
		return "Idempotency-Key"
	}
	return "idempotency-key"
}

func decodeArguments(input json.RawMessage) (map[string]any, error) {
	arguments := map[string]any{}
	if len(input) == 0 {
		return arguments, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(input))
	decoder.UseNumber()
	if err := decoder.Decode(&arguments); err != nil {
		return nil, errors.New("the arguments are not a JSON object")
	}
	return arguments, nil
}

// address builds the URL. Each path segment stays one segment.
func (r *request) address(v values) (*url.URL, error) {
	u := r.base
	for _, t := range r.path {
		segment, err := t.segment(v)
		if err != nil {
			return nil, err
		}
		u.Path += "/" + segment
		u.RawPath += "/" + url.PathEscape(segment)
	}
	query := []string{}
	if r.fixed != "" {
		query = append(query, r.fixed)
	}
	for _, f := range r.query {
		texts, err := f.texts(v)
		if err != nil {
			return nil, err
		}
		for _, text := range texts {
			query = append(query, url.QueryEscape(f.name)+"="+url.QueryEscape(text))
		}
	}
	u.RawQuery = strings.Join(query, "&")
	return &u, nil
}

// segment returns a segment of the path. It refuses values that a server may interpret as another path: empty ones, . or ..
// between slashes of either kind, and control characters.
func (t template) segment(v values) (string, error) {
	segment, err := t.fill(v)
	if err != nil {
		return "", err
	}
	ours := ""
	for _, p := range t {
		if p.trusted == nil {
			continue
		}
		ours = p.name
		if p.trusted(v.context) == "" {
			return "", fmt.Errorf("this run has no %s, which the path of the request needs", p.name)
		}
	}
	arguments := t.arguments()
	if len(arguments) == 0 && ours == "" {
		return segment, nil
	}
	bad := segment == "" || strings.ContainsFunc(segment, unicode.IsControl)
	for piece := range strings.FieldsFuncSeq(segment, func(c rune) bool { return c == '/' || c == '\\' }) {
		bad = bad || piece == "." || piece == ".."
	}
	switch {
	case bad && len(arguments) > 0:
		return "", fmt.Errorf("the argument %q cannot be part of a path; send a plain name", arguments[0])
	case bad:
		return "", fmt.Errorf("the %s of this run cannot be part of a path", ours)
	}
	return segment, nil
}

// header returns the configured headers.
func (r *request) header(v values) (map[string]string, error) {
	headers := make(map[string]string, len(r.headers))
	for name, t := range r.headers {
		text, err := t.fill(v)
		if err != nil {
			return nil, err
		}
		if !isHeaderValue(text) {
			return nil, fmt.Errorf("the value of the header %s would have control characters", name)
		}
		headers[name] = text
	}
	return headers, nil
}

func isHeaderValue(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// texts returns the values of a field; none for a missing argument.
func (f field) texts(v values) ([]string, error) {
	name, alone := f.template.single()
	if !alone {
		text, err := f.template.fill(v)
		return []string{text}, err
	}
	switch argument := v.arguments[name].(type) {
	case nil:
		return nil, nil
	case []any:
		values := make([]string, 0, len(argument))
		for _, item := range argument {
			text, ok := scalar(item)
			if !ok {
				return nil, fmt.Errorf("the argument %q must be a list of texts, numbers or booleans", name)
			}
			values = append(values, text)
		}
		return values, nil
	}
	text, err := f.template.fill(v)
	return []string{text}, err
}

// content builds the body; nil for none.
func (r *request) content(input json.RawMessage, v values) ([]byte, error) {
	switch {
	case r.template != nil:
		value, present, err := fillBody(r.template, v)
		if err != nil {
			return nil, err
		}
		if !present {
			value = nil
		}
		return json.Marshal(value)
	case r.body == BodyInput && len(input) == 0:
		return []byte("{}"), nil
	case r.body == BodyInput:
		return input, nil
	}
	return nil, nil
}

// compileBody replaces texts by templates.
func (b *builder) compileBody(value any) any {
	switch v := value.(type) {
	case string:
		if !strings.Contains(v, "{") {
			return v
		}
		return b.template("body", v)
	case []any:
		for i, item := range v {
			v[i] = b.compileBody(item)
		}
	case map[string]any:
		for name, inner := range v {
			v[name] = b.compileBody(inner)
		}
	}
	return value
}

// fillBody returns a compiled body with the arguments, and whether it is present.
func fillBody(value any, with values) (filled any, present bool, err error) {
	switch v := value.(type) {
	case template:
		if name, alone := v.single(); alone {
			argument, ok := with.arguments[name]
			return argument, ok, nil
		}
		text, err := v.fill(with)
		return text, true, err
	case []any:
		list := make([]any, 0, len(v))
		for _, item := range v {
			inner, ok, err := fillBody(item, with)
			if err != nil {
				return nil, false, err
			}
			if ok {
				list = append(list, inner)
			}
		}
		return list, true, nil
	case map[string]any:
		object := make(map[string]any, len(v))
		for name, item := range v {
			inner, ok, err := fillBody(item, with)
			if err != nil {
				return nil, false, err
			}
			if ok {
				object[name] = inner
			}
		}
		return object, true, nil
	}
	return value, true, nil
}
