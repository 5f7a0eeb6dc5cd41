package chat

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

func FuzzABodyIsDecodedOrRefusedWithAFault(f *testing.F) {
	for _, seed := range []string{
		`{"id":"s","messages":[{"role":"assistant","parts":[{"type":"step-start"},{"type":"tool-a","toolCallId":"c","state":"output-available","output":1}]},{"id":"u","role":"user","parts":[{"type":"text","text":"hi"}]}]}`,
		`{"id":"s","message":{"id":"m","role":"assistant","parts":[{"type":"dynamic-tool","toolName":"a","toolCallId":"c","state":"approval-responded","approval":{"id":"a","approved":true}}]}}`,
		`{"id":"s","message":"hi","trigger":"regenerate-message","messageId":"m","onBusy":"enqueue"}`,
		`{"id":"s","messages":[{"role":"assistant","parts":[{"type":0}]},{"role":"user","parts":[{"type":"text","text":"hi"}]}]}`,
		`{"\u0069d":"s","messages":[null,1,"x",[]],"message":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		body := request{budget: partBudget{max: 100}}
		if err := httpapi.DecodeJSON(text, &body); err != nil {
			wantFault(t, err)
			return
		}
		p, err := new(Chat).check(Request{}, &body)
		if err != nil {
			wantFault(t, err)
			return
		}
		if n := len(p.operation.reply.lastStepAnswers()); n > maxAnswers || n > 100 {
			t.Errorf("%d answers", n)
		}
		if _, err := p.history(body.list.raw, body.list.count); err != nil {
			wantFault(t, err)
		}
	})
}

// wantFault checks that an error is told to the client with a reason.
func wantFault(t *testing.T, err error) {
	t.Helper()
	if f, ok := fault.From(err); !ok || f.Reason == "" || f.Kind == fault.Internal {
		t.Errorf("got %v, want a fault of the client", err)
	}
}

func FuzzAWalkSeesWhatJSONDecodes(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b":[{}, "x\"]"] , "\u0061":null}`, "[ 1,\t{\"a\":[]} ,\"\\\\\"\r\n]", `{"":{"":[[[]]]}}`, `{}`, `[]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		text = bytes.TrimSpace(text)
		if !json.Valid(text) {
			return
		}
		switch text[0] {
		case '{':
			wantMembers(t, text)
		case '[':
			var want []json.RawMessage
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			_ = walkArray(text, func(value []byte, at int64) error {
				if len(want) == 0 || !bytes.Equal(value, want[0]) || !bytes.HasPrefix(text[at:], value) {
					t.Fatalf("%s: got %s at %d", text, value, at)
				}
				want = want[1:]
				return nil
			})
			if len(want) > 0 {
				t.Errorf("%s: not seen: %s", text, want)
			}
		}
	})
}

func wantMembers(t *testing.T, text []byte) {
	t.Helper()
	var want map[string]json.RawMessage
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	if err := walkObject(text, func(name string, value []byte, at int64) error {
		if !bytes.HasPrefix(text[at:], value) {
			t.Fatalf("%s: %s is not at %d", text, value, at)
		}
		got[name] = string(value)
		return nil
	}); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if len(got) != len(want) {
		t.Errorf("%s: got %d keys, want %d", text, len(got), len(want))
	}
	for name, value := range want {
		if got[name] != string(value) {
			t.Errorf("%s: %q is %s, want %s", text, name, got[name], value)
		}
	}
}

func FuzzAPlaceIsReadAsItIsWritten(f *testing.F) {
	for _, seed := range []string{"1", "0", "9007199254740991.3", "-1", "1.0", "1.", ".1", "1.1001", "+1", "", "1.1.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := httptest.NewRequest(http.MethodGet, "/chat/s/stream?fromSequence="+url.QueryEscape(text), nil)
		p, given, ok := cursorOf(r)
		if !ok || !given {
			return
		}
		r = httptest.NewRequest(http.MethodGet, "/chat/s/stream", nil)
		r.Header.Set("Last-Event-ID", p.String())
		if again, given, ok := cursorOf(r); again != p || !given || !ok {
			t.Errorf("%q is %+v, which is written %s and read %+v, %v, %v", text, p, p, again, given, ok)
		}
	})
}
