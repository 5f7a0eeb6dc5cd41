package cloudflare

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"testing/iotest"
)

func FuzzAFrameArrivesInAnyPieces(f *testing.F) {
	for _, seed := range []string{
		`{"type":"cf_agent_use_chat_request","id":"1","init":{"method":"POST","body":"{\"messages\":[{\"id\":\"\ud83d\ude00\"}]}"}}`,
		`{"type":"rpc","id":"1","method":"m","args":[1,{"a":"b"}]}`, `{"init":{"body":"\ud83d`, `{"init":{"body":"\q"}}`, `{"type":"cf_agent_state","state":{"a":1}}`, `]{"init":`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rest, body, _, err := receive(bytes.NewReader(text), 1<<16, io.ReadAll)
		slowRest, slowBody, _, slowErr := receive(iotest.OneByteReader(bytes.NewReader(text)), 1<<16, io.ReadAll)
		if (err == nil) != (slowErr == nil) || err == nil && (!bytes.Equal(rest, slowRest) || !bytes.Equal(body, slowBody)) {
			t.Errorf("%q: at once %q, %q, %v; byte by byte %q, %q, %v", text, rest, body, err, slowRest, slowBody, slowErr)
		}
		if len(rest)+len(body) > 3*len(text) { // an invalid byte is as large as its replacement
			t.Errorf("%q: %d bytes", text, len(rest)+len(body))
		}
	})
}

func FuzzADigestIsOfTheValue(f *testing.F) {
	for _, seed := range []string{`{"b":1,"a":[1.0,1e400,null]}`, `"x"`, `{"a":`, `{} {}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var indented bytes.Buffer
		if json.Indent(&indented, []byte(text), " ", "\t") != nil {
			return
		}
		if digestOf(text) != digestOf(indented.String()) {
			t.Errorf("%q has another digest than %q", text, indented.String())
		}
	})
}
