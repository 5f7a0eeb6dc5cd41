package httptool

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
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
		if r.form != nil {
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
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
		pairs, err := f.pairs(v)
		if err != nil {
			return nil, err
		}
		query = append(query, pairs...)
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
	for name, argument := range r.taken {
		value := v.arguments[argument]
		if items, isList := value.([]any); isList {
			texts := make([]string, len(items))
			for i, item := range items {
				texts[i], _ = scalar(item)
			}
			value = strings.Join(texts, ",")
		}
		if value == nil {
			continue
		}
		text, ok := scalar(value)
		if !ok || !isHeaderValue(text) {
			return nil, fmt.Errorf("the argument %q must be a text without control characters, for it is the header %s", argument, name)
		}
		headers[name] = text
	}
	return headers, nil
}

func isHeaderValue(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// pairs returns the escaped name=value of a field; none for a missing argument.
func (f field) pairs(v values) ([]string, error) {
	name, alone := f.template.single()
	if !alone {
		text, err := f.template.fill(v)
		return []string{url.QueryEscape(f.name) + "=" + url.QueryEscape(text)}, err
	}
	return encode(nil, f.name, v.arguments[name], f.style, name)
}

// encode appends the escaped name=value of an argument in a query or a form; none for null.
func encode(pairs []string, name string, value any, style Style, argument string) ([]string, error) {
	pair := func(text string) string { return url.QueryEscape(name) + "=" + text }
	switch v := value.(type) {
	case nil:
		return pairs, nil
	case []any:
		var texts []string
		for i, item := range v {
			if style == StyleBrackets {
				var err error
				if pairs, err = encode(pairs, fmt.Sprintf("%s[%d]", name, i), item, style, argument); err != nil {
					return nil, err
				}
				continue
			}
			text, ok := scalar(item)
			if !ok {
				return nil, fmt.Errorf("the argument %q must be a list of texts, numbers or booleans", argument)
			}
			texts = append(texts, url.QueryEscape(text))
		}
		switch {
		case len(texts) == 0:
		case style == StyleRepeated:
			for _, text := range texts {
				pairs = append(pairs, pair(text))
			}
		default:
			separator := map[Style]string{StyleCommas: ",", StyleSpaces: "%20", StylePipes: "%7C"}[style]
			pairs = append(pairs, pair(strings.Join(texts, separator)))
		}
		return pairs, nil
	case map[string]any:
		if style != StyleBrackets {
			break
		}
		for _, member := range slices.Sorted(maps.Keys(v)) {
			var err error
			if pairs, err = encode(pairs, name+"["+member+"]", v[member], style, argument); err != nil {
				return nil, err
			}
		}
		return pairs, nil
	}
	text, ok := scalar(value)
	if !ok {
		return nil, fmt.Errorf("the argument %q must be a text, a number or a boolean", argument)
	}
	return append(pairs, pair(url.QueryEscape(text))), nil
}

// formOf returns the argument as a form. Members that are more than a list of plain values have brackets.
func (r *request) formOf(value any) ([]byte, error) {
	members, isObject := value.(map[string]any)
	if !isObject {
		return nil, fmt.Errorf("the argument %q must be an object", r.argument)
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		style := r.form[name]
		items, isList := members[name].([]any)
		_, isPlain := scalar(members[name])
		isNested := func(item any) bool {
			_, plain := scalar(item)
			return !plain
		}
		if !isPlain && (!isList || slices.ContainsFunc(items, isNested)) {
			style = StyleBrackets
		}
		var err error
		if pairs, err = encode(pairs, name, members[name], style, r.argument+"."+name); err != nil {
			return nil, err
		}
	}
	return []byte(strings.Join(pairs, "&")), nil
}

// content builds the body; nil for none.
func (r *request) content(input json.RawMessage, v values) ([]byte, error) {
	switch {
	case r.argument != "":
		value, present := v.arguments[r.argument]
		switch {
		case !present:
			return nil, nil
		case r.form != nil:
			return r.formOf(value)
		}
		return json.Marshal(value)
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
