package chatws

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestAFrameSaysWhatThePostWouldSay(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"type":"send","requestId":"r","id":"s","messages":[]}`:                                                            `{"id":"s","messages":[]}`,
		`{"type":"send","requestId":"r","id":"s","trigger":"t","messageId":"m","messages":[1],"body":null}`:                 `{"id":"s","messages":[1],"trigger":"t","messageId":"m"}`,
		`{"type":"send","requestId":"r","id":"s","messages":[1],"body":{ }}`:                                                `{"id":"s","messages":[1]}`,
		`{"type":"send","requestId":"r","id":"\"","messages":[1],"body": { "a" : {"b":"}"}, "c":null } }`:                   `{"a":{"b":"}"},"c":null,"id":"\"","messages":[1]}`,
		`{"type":"send","requestId":"r","id":"s","messages":[1],"body":{"ID":1,"messages":2,"trigger":"y","messageId":{}}}`: `{"id":"s","messages":[1]}`,
	} {
		f, err := parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := string(f.post()); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestARefusalOfAFrameSpeaksOfJSONAndNotOfOurTypes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"type":7,"requestId":"r"}`:                  `at "type", byte 9`,
		`{"type":"send","requestId":"r","id":["s1"]}`: `a array at "id"`,
		`{"type":"send","requestId":"r","id":"s1"`:    "not JSON, at byte 40",
		`[]`: "array",
		`{"requestId":"r","type":{"messages":[1,2,3]}}`: `at "type"`,
	} {
		_, err := parse([]byte(text))
		got, _ := fault.From(err)
		if got == nil || got.Reason != "FRAME_INVALID" || !strings.Contains(got.Detail, want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
			continue
		}
		for _, ours := range []string{"Go ", "struct", "chatws", "frame.", "json:"} {
			if strings.Contains(got.Detail, ours) {
				t.Errorf("%s: %q stands in %q", text, ours, got.Detail)
			}
		}
	}
}

func TestTheRunOfAResumeIsNamedInItsBodyOrAsTheHeaderOfAnAnswerHasIt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"type":"resume","requestId":"r","id":"s"}`:                                                              "",
		`{"type":"resume","requestId":"r","id":"s","body":{"runId":"a%20b"}}`:                                     "a%20b",
		`{"type":"resume","requestId":"r","id":"s","headers":{"x-holdfast-run-id":"a%20b"}}`:                      "a b",
		`{"type":"resume","requestId":"r","id":"s","headers":{"x-holdfast-run-id":"100%"}}`:                       "100%",
		`{"type":"resume","requestId":"r","id":"s","headers":{"x-holdfast-run-id":"h"},"body":{"runId":"b"}}`:     "b",
		`{"type":"resume","requestId":"r","id":"s","headers":{"x-holdfast-run-id":"h"},"body":{"runId":null}}`:    "h",
		`{"type":"resume","requestId":"r","id":"s","headers":{"x-holdfast-run-id":"run-1"},"body":{"other":"b"}}`: "run-1",
	} {
		f, err := parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		header, err := f.header()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.runID(header); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", text, got, err, want)
		}
	}
}

func FuzzFrames(f *testing.F) {
	for _, seed := range []string{
		`{"type":"send","requestId":"r","id":"s","trigger":"submit-message","messages":[{"id":"u"}],"headers":{"X-Holdfast-On-Busy":"reject"},"body":{"a":1}}`,
		`{"type":"send","requestId":"r","id":"s","messages":[],"body":{"id":1,"Messages":[]},"BODY":{}}`,
		`{"type":"resume","requestId":"r","id":"s","headers":{},"body":{"runId":"x"}}`, `{"type":"abort","requestId":"r"}`,
		`{"type":"send","requestId":"\u2028","id":"\ud800","messages":[null]}`, `null`, `[]`, "{\"requestId\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		frame, err := parse(text)
		if frame == nil {
			t.Fatal("no frame")
		}
		if err != nil {
			if !errors.Is(err, fault.Invalid) {
				t.Fatalf("got %v", err)
			}
			wantFrame(t, encodeError(frame.RequestID, err), typeError, frame.RequestID)
			return
		}
		wantFrame(t, encodeChunk(frame.RequestID, 7, []byte(`{}`)), typeChunk, frame.RequestID)
		wantFrame(t, encodeReply(typeEnd, frame.RequestID), typeEnd, frame.RequestID)
		if header, err := frame.header(); err == nil && len(header) > len(headers) {
			t.Fatalf("got the headers %v", header)
		}
		_, _ = frame.runID(nil)
		if frame.Type != typeSend {
			return
		}
		var post struct {
			ID, Trigger, MessageID string
			Messages               []json.RawMessage
		}
		if err := json.Unmarshal(frame.post(), &post); err != nil {
			t.Fatalf("%s: %v", frame.post(), err)
		}
		if post.ID != frame.ID || post.Trigger != frame.Trigger || post.MessageID != frame.MessageID {
			t.Fatalf("%s says %+v", frame.post(), post)
		}
	})
}

// wantFrame checks that a reply is one JSON object of the type, for the request.
func wantFrame(t *testing.T, text []byte, kind, request string) {
	t.Helper()
	var got struct{ Type, RequestID string }
	if err := json.Unmarshal(text, &got); err != nil || got.Type != kind || got.RequestID != request {
		t.Fatalf("%s: got %+v, %v; want %s for %q", text, got, err, kind, request)
	}
}
