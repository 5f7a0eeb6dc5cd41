package endpoint_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The secrets of every app: it accepts both, as during a rotation. The executor of the conformance suite signs with the new one.
var (
	oldSecret = "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("old-"), 8))
	newSecret = "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("new-"), 8))
)

// envelope is a request of the wire, which the suite signs by itself: without any code of the product.
type envelope struct {
	method, body  string
	id            string
	at            time.Time
	secrets       []string
	version       string
	header        http.Header // replaces the computed ones
	withoutHeader []string
}

// sign returns the signature of Standard Webhooks 1.0.0.
func sign(secret, id, timestamp, body string) string {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		panic(err) // the secrets are above
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "." + body))
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// reply is the answer to an envelope.
type reply struct {
	status int
	header http.Header
	text   string
	code   string // of an error
}

// send sends the request to the app.
func (e envelope) send(t *testing.T, url string) reply {
	t.Helper()
	got, err := e.try(t, url)
	if err != nil {
		t.Fatalf("%s %s: %v", e.method, url, err)
	}
	return got
}

// try is send. It returns the error of a connection that the app has closed.
func (e envelope) try(t *testing.T, url string) (reply, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, e.method, url, strings.NewReader(e.body))
	if err != nil {
		t.Fatal(err)
	}
	timestamp := strconv.FormatInt(e.at.Unix(), 10)
	var signatures []string
	for _, secret := range e.secrets {
		signatures = append(signatures, sign(secret, e.id, timestamp, e.body))
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Webhook-Id", e.id)
	r.Header.Set("Webhook-Timestamp", timestamp)
	r.Header.Set("Webhook-Signature", strings.Join(signatures, " "))
	r.Header.Set("Holdfast-Endpoint", e.version)
	for name, values := range e.header {
		r.Header[name] = values
	}
	for _, name := range e.withoutHeader {
		r.Header.Del(name)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return reply{}, err
	}
	var failed struct {
		Error struct{ Code, Message string }
	}
	_ = json.Unmarshal(text, &failed) // an answer without an error has no code
	if failed.Error.Code != "" && failed.Error.Message == "" {
		t.Errorf("%s has no message for people", text)
	}
	return reply{answer.StatusCode, answer.Header, string(text), failed.Error.Code}, nil
}

// toolCall is a valid call of the tool act, with some members of the context.
func toolCall(agent, kind, name, ops string) string {
	return fmt.Sprintf(`{"type":%q,"agent":%q,"name":%q,"build":"b","context":{"tenant":"first","user":null,
		"session":{"id":"s-1","parentId":null,"tags":[],"metadata":{}},"run":{"id":"r-1","turn":1},"step":1,
		"call":{"id":"c-1","idempotencyKey":"k-1","attempt":1},"deadline":%q},"state":{},"input":{"do":%s}}`,
		kind, agent, name, time.Now().Add(time.Minute).UTC().Format(time.RFC3339), ops)
}

// valid returns a signed request of its own.
func valid(body string) envelope {
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	return envelope{method: method, body: body, id: rand.Text(), at: time.Now(), secrets: []string{newSecret}, version: "1"}
}

// wantRefusal sends the request and checks how it is refused; status 200 means that it is not.
func wantRefusal(t *testing.T, url, what string, e envelope, status int, code string) reply {
	t.Helper()
	got := e.send(t, url)
	if got.status != status || got.code != code {
		t.Errorf("%s: got %d %s %.300s, want %d %s", what, got.status, got.code, got.text, status, code)
	}
	return got
}

// checkSignatures checks which requests an app refuses.
func checkSignatures(t *testing.T, url string) {
	call := toolCall("puppet", "tool", "act", `[{"op":"return","value":1}]`)
	for _, body := range []string{"", call} { // GET and POST
		e := valid(body)
		wantRefusal(t, url, "a signed request", e, http.StatusOK, "")
		wantRefusal(t, url, "the same request again", e, http.StatusConflict, "REPLAYED")

		e = valid(body)
		e.secrets = []string{oldSecret}
		wantRefusal(t, url, "a request signed with the other secret of a rotation", e, http.StatusOK, "")

		e = valid(body)
		e.secrets = []string{"whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 32))}
		wantRefusal(t, url, "a forged request", e, http.StatusUnauthorized, "SIGNATURE_INVALID")
		e.secrets = []string{newSecret}
		wantRefusal(t, url, "a request with the id of a forged one", e, http.StatusOK, "")

		e = valid(body)
		e.secrets = []string{"whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 32)), oldSecret, newSecret}
		wantRefusal(t, url, "a request with several signatures", e, http.StatusOK, "")

		e = valid(body)
		e.withoutHeader = []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"}
		wantRefusal(t, url, "an unsigned request", e, http.StatusUnauthorized, "SIGNATURE_MISSING")
		for _, name := range e.withoutHeader {
			e := valid(body)
			e.withoutHeader = []string{name}
			wantRefusal(t, url, "a request without "+name, e, http.StatusUnauthorized, "SIGNATURE_MISSING")
		}

		for what, at := range map[string]time.Duration{"a late request": -301 * time.Second, "a request of the future": 310 * time.Second} {
			e := valid(body)
			e.at = time.Now().Add(at)
			wantRefusal(t, url, what, e, http.StatusUnauthorized, "TIMESTAMP_INVALID")
		}
		e = valid(body)
		e.at = time.Now().Add(-290 * time.Second)
		wantRefusal(t, url, "a request that is almost late", e, http.StatusOK, "")

		for what, change := range map[string]http.Header{
			"another id":        {"Webhook-Id": {"other"}},
			"another time":      {"Webhook-Timestamp": {strconv.FormatInt(time.Now().Unix()+7, 10)}},
			"another algorithm": {"Webhook-Signature": {"v2," + base64.StdEncoding.EncodeToString(make([]byte, 32))}},
			"a broken one":      {"Webhook-Signature": {"v1,%%%"}},
			"a short one":       {"Webhook-Signature": {"v1,AAAA"}},
			"an empty one":      {"Webhook-Signature": {"v1,"}},
		} {
			e := valid(body)
			e.header = change
			wantRefusal(t, url, "a signature for "+what, e, http.StatusUnauthorized, "SIGNATURE_INVALID")
		}
		e = valid(body)
		e.header = http.Header{"Webhook-Timestamp": {"soon"}}
		if got := e.send(t, url); got.status != http.StatusUnauthorized {
			t.Errorf("a time that is none: got %d %s, want 401", got.status, got.text)
		}
	}
	e := valid(call)
	e.header = http.Header{"Webhook-Signature": {sign(newSecret, e.id, strconv.FormatInt(e.at.Unix(), 10), call+" ")}}
	wantRefusal(t, url, "another body", e, http.StatusUnauthorized, "SIGNATURE_INVALID")
	e = valid("{")
	e.secrets = []string{"whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 32))}
	wantRefusal(t, url, "a forged request that is no JSON", e, http.StatusUnauthorized, "SIGNATURE_INVALID")
}

// checkRequests checks how an app answers requests that are signed.
func checkRequests(t *testing.T, url string) {
	act := func(ops string) string { return toolCall("puppet", "tool", "act", ops) }
	for what, c := range map[string]struct {
		body   string
		status int
		code   string
	}{
		"an unknown agent":    {toolCall("nobody", "tool", "act", `[]`), http.StatusNotFound, "AGENT_UNKNOWN"},
		"an unknown tool":     {toolCall("puppet", "tool", "nothing", `[]`), http.StatusNotFound, "TOOL_UNKNOWN"},
		"a client tool":       {toolCall("puppet", "tool", "ask", `[]`), http.StatusNotFound, "TOOL_UNKNOWN"},
		"an unknown callback": {toolCall("puppet", "prompt", "", `[]`), http.StatusNotFound, "CALLBACK_UNKNOWN"},
		"an unknown type":     {toolCall("puppet", "dance", "act", `[]`), http.StatusNotFound, "CALLBACK_UNKNOWN"},
		"an unknown hook":     {toolCall("hooked", "hook", "beforeLunch", `[]`), http.StatusNotFound, "CALLBACK_UNKNOWN"},
		"an unknown method": {
			toolCall("methodical", "method", "nothing of this name", `[]`), http.StatusNotFound, "CALLBACK_UNKNOWN",
		},
		"a name of the language's own objects": {toolCall("methodical", "method", "constructor", `[]`), http.StatusNotFound, "CALLBACK_UNKNOWN"},
		"a body that is no JSON":               {"{", http.StatusBadRequest, "REQUEST_INVALID"},
		"a body that is no object":             {"[]", http.StatusBadRequest, "REQUEST_INVALID"},
		"a body without members":               {"{}", http.StatusBadRequest, "REQUEST_INVALID"},
		"a body that is null":                  {"null", http.StatusBadRequest, "REQUEST_INVALID"},
		"a body that is no UTF-8":              {"{\"type\":\"tool\",\"agent\":\"\xff\"}", http.StatusBadRequest, "REQUEST_INVALID"},
	} {
		wantRefusal(t, url, what, valid(c.body), c.status, c.code)
	}

	e := valid(act(`[]`))
	e.version = "2"
	got := wantRefusal(t, url, "an unknown version", e, http.StatusBadRequest, "VERSION_UNSUPPORTED")
	if !strings.Contains(strings.ReplaceAll(got.text, " ", ""), `"versions":[1]`) {
		t.Errorf("the answer to an unknown version is %s, want the known ones", got.text)
	}
	e = valid("")
	e.version = "2"
	wantRefusal(t, url, "a description of an unknown version", e, http.StatusBadRequest, "VERSION_UNSUPPORTED")
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch} {
		e := valid(act(`[]`))
		e.method = method
		if got := e.send(t, url); got.status != http.StatusMethodNotAllowed {
			t.Errorf("%s: got %d %s, want 405", method, got.status, got.text)
		}
	}

	more := strings.Replace(act(`[{"op":"emit","name":"n","value":1},{"op":"return","value":7}]`), `{"type"`, `{"new":{"a":1},"type"`, 1)
	more = strings.Replace(more, `"context":{`, `"context":{"organization":{"id":"o"},"priority":5,`, 1)
	got = wantRefusal(t, url, "unknown members", valid(more), http.StatusOK, "")
	if want := "{\"event\":{\"name\":\"n\",\"data\":1}}\n{\"result\":7}\n"; linesWithoutPings(t, got.text) != want {
		t.Errorf("the answer is %q, want %q", got.text, want)
	}
	if kind := got.header.Get("Content-Type"); !strings.HasPrefix(kind, "application/x-ndjson") {
		t.Errorf("the answer has the content type %q, want application/x-ndjson", kind)
	}
	large := act(`[{"op":"return","value":1},{"op":"return","value":"` + strings.Repeat("x", 15<<20) + `"}]`)
	wantRefusal(t, url, "a request of almost 16 MiB", valid(large), http.StatusOK, "")
	larger := valid(act(`[{"op":"return","value":"` + strings.Repeat("x", 33<<20) + `"}]`))
	if got, err := larger.try(t, url); err == nil && (got.status != http.StatusRequestEntityTooLarge || got.code != "REQUEST_TOO_LARGE") {
		t.Errorf("a request that is too large: got %d %s, want 413, or a closed connection", got.status, got.text)
	}
}

// linesWithoutPings returns the lines of an answer as compact JSON.
func linesWithoutPings(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			t.Errorf("the line %q does not end", line)
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &object); err != nil || len(object) != 1 {
			t.Errorf("the line %q is no object with one member: %v", line, err)
		}
		if object["ping"] == nil {
			var compacted bytes.Buffer
			if err := json.Compact(&compacted, []byte(line)); err != nil {
				t.Fatal(err)
			}
			b.WriteString(compacted.String() + "\n")
		}
	}
	return b.String()
}
