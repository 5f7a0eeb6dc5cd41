package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func FuzzMessagesOfAChildAreWholeLines(f *testing.F) {
	for _, seed := range []string{"{\"a\":1}\n[2]\r\n\n{\"b\":3}", "{\n}\n", "null", "\xff\n", "{\"jsonrpc\":\"2.0\"}\n{"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, fail := context.WithCancelCause(t.Context())
		defer fail(nil)
		got, _ := io.ReadAll(newFrames(io.NopCloser(bytes.NewReader(text)), fail))
		for line := range bytes.Lines(got) {
			if !json.Valid(line) || line[len(line)-1] != '\n' {
				t.Errorf("%q: got the line %q", text, line)
			}
		}
	})
}

func FuzzAnyResultOfAServerIsConverted(f *testing.F) {
	for _, seed := range []string{
		`{"content":[{"type":"text","text":"a"},{"type":"image","data":"AAAA","mimeType":"image/png"}]}`,
		`{"content":[],"structuredContent":{"a":1}}`, `{"isError":true,"content":[{"type":"text","text":""}]}`,
		`{"content":[{"type":"resource","resource":{"uri":"a:b","blob":"AA=="}},{"type":"resource_link","uri":"x","name":"n"}]}`, `{"content":[null]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var r mcp.CallToolResult
		if json.Unmarshal(text, &r) != nil {
			return
		}
		value, err := resultOf(&r)
		if err != nil {
			return
		}
		if _, err := json.Marshal(value); err != nil {
			t.Errorf("%q: the result %v is not JSON: %v", text, value, err)
		}
	})
}
