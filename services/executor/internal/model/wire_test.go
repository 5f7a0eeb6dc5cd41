package model_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

func TestOptionsReplaceNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ body, options, want string }{
		"none":                         {`{"b":1,"a":2}`, ``, `{"b":1,"a":2}`},
		"another member":               {`{"a":1}`, `{"b":{"c":2}}`, `{"a":1,"b":{"c":2}}`},
		"a member that is set":         {`{"a":1}`, `{"a":2}`, `{"a":1}`},
		"a list that is set":           {`{"a":[1]}`, `{"a":[2]}`, `{"a":[1]}`},
		"a member of an object":        {`{"a":{"b":1,"x":{"y":1}}}`, `{"a":{"b":2,"c":3,"x":{"z":2}}}`, `{"a":{"b":1,"c":3,"x":{"y":1,"z":2}}}`},
		"an object where a value is":   {`{"a":1}`, `{"a":{"b":2}}`, `{"a":1}`},
		"a value where an object is":   {`{"a":{"b":2}}`, `{"a":1}`, `{"a":{"b":2}}`},
		"numbers stay as written":      {`{"a":9007199254740993}`, `{"b":1.00}`, `{"a":9007199254740993,"b":1.00}`},
		"a member that is set to null": {`{"a":null}`, `{"a":1}`, `{"a":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := model.MergeOptions(json.RawMessage(test.body), json.RawMessage(test.options))
			if err != nil || string(got) != test.want {
				t.Errorf("got %s, %v, want %s", got, err, test.want)
			}
		})
	}
	for _, bad := range []string{"[]", "1", "{", "null"} {
		_, err := model.MergeOptions(json.RawMessage(`{}`), json.RawMessage(bad))
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeInvalidRequest {
			t.Errorf("%s: got error %v, want %s", bad, err, model.CodeInvalidRequest)
		}
	}
}

func TestOnlyStringsLoseTheirQuotes(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`"here"`: "here", ` "" `: "", `"null"`: "null", `null`: "null", ` null`: " null", `0`: "0", `false`: "false", `{"a":null}`: `{"a":null}`, `[]`: "[]", ``: "",
	} {
		if got := model.PlainText(json.RawMessage(value)); got != want {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	}
}

func TestCallIDsOfAReplyAreUnique(t *testing.T) {
	t.Parallel()
	ids := model.NewCallIDs(3)
	var got []string
	for i, given := range []string{"a", "", "a", "a", "a_2", "", "call_3_1"} {
		got = append(got, ids.Assign(given, i))
	}
	if want := "a call_3_1 a_2 a_3 a_2_2 call_3_5 call_3_1_2"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestErrorsAreRedacted(t *testing.T) {
	t.Parallel()
	wrapped := errors.New("dial with sk-1: refused")
	err := model.Redact(&model.Error{Code: "c", StatusCode: 401, Message: "no such key: sk-1, sk-1.", Err: wrapped}, "sk-1")
	if got, want := err.Error(), "c (HTTP 401): no such key: [key], [key]."; got != want || errors.Unwrap(err) != nil {
		t.Errorf("got %q around %v, want %q around nothing", got, errors.Unwrap(err), want)
	}
	harmless := &model.Error{Message: "m", Err: errors.New("e")}
	if got := model.Redact(harmless, "sk-1"); got.Error() != harmless.Error() || errors.Unwrap(got) == nil {
		t.Errorf("got %v", got)
	}
	if got := model.Redact(wrapped, "other"); !errors.Is(got, wrapped) {
		t.Errorf("got %v, want it unchanged", got)
	}
}

func TestDataURLsAreDecoded(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"data:text/plain,a%20b":          "a b",
		"data:;base64,YSxi":              "a,b",
		"data:image/png;base64,_-8":      "\xff\xef",
		"data:image/png;base64,%2F-8%3D": "\xff\xef",
		"data:,":                         "",
	} {
		if got, ok := model.DecodeDataURL(source); !ok || string(got) != want {
			t.Errorf("%s: got %q, %t, want %q", source, got, ok, want)
		}
	}
	for _, bad := range []string{"https://example.com/,a", "data:text/plain", "data:;base64,A*", "data:,%zz"} {
		if got, ok := model.DecodeDataURL(bad); ok {
			t.Errorf("%s: got %q, want none", bad, got)
		}
	}
}

func TestToolNamesAreMadeValid(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"get_weather-2": "get_weather-2", "multi_tool_use.parallel": "multi_tool_use_parallel", "wétter 天": "w_tter__", "": "unnamed",
		strings.Repeat("n", 65): strings.Repeat("n", 64),
	} {
		if got := model.ToolName(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
