package cloudflare

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestAFrameIsSplitIntoItsBodyAndTheRest(t *testing.T) {
	t.Parallel()
	quoted := func(text string) string { return string(encode(text)) }
	for body, frame := range map[string]string{
		"{\"a\":\"ü\\n€😀\u2028\"}": "{\"id\":\"1\",\"init\":{\"method\":\"POST\",\"body\":BODY},\"type\":\"x\"}",
		"[1,2]":                    `{"init" : { "body" : BODY , "more":{"body":"no"} } }`,
		"":                         `{"type":"x","body":"no","a":{"body":"no","init":{"body":"no"}},"init":{"x":{"body":"no"},"body":BODY}}`,
	} {
		for _, text := range []string{strings.ReplaceAll(frame, "BODY", quoted(body)), strings.ReplaceAll(frame, "BODY", strings.ReplaceAll(quoted(body), "😀", `\ud83d\ude00`))} {
			rest, got, files, err := receive(iotest.OneByteReader(strings.NewReader(text)), 1<<10, io.ReadAll)
			if want := strings.ReplaceAll(frame, "BODY", `""`); string(got) != body || string(rest) != want || files || err != nil {
				t.Errorf("%s: got %q and %s, %v", text, got, rest, err)
			}
		}
	}
	const other = `{"type":"init","init":7,"body":"x","list":["init",{"body":"y"}]}`
	if rest, body, _, err := receive(strings.NewReader(other), 1<<10, io.ReadAll); string(rest) != other || body != nil || err != nil {
		t.Errorf("got %q and %s, %v", body, rest, err)
	}
}

func FuzzAFrameIsSplitAsJSONIsDecoded(f *testing.F) {
	f.Add(`{"init":{"body":"{\"a\":\"\\ud83d\\u00fc\"}"},"type":"x"}`)
	f.Add(`{"init":{"body":"\ud83d\ud83d\ude00\ud83dx"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var want, got frame
		if json.Unmarshal([]byte(text), &want) != nil || strings.Count(text, "body") != 1 || strings.Count(text, "init") != 1 {
			return
		}
		rest, body, _, err := receive(strings.NewReader(text), 1<<20, io.ReadAll)
		if err != nil || json.Unmarshal(rest, &got) != nil {
			t.Fatalf("%q: %v, %s", text, err, rest)
		}
		if body != nil {
			got.Init.Body = strings.ToValidUTF8(string(body), "\uFFFD")
		}
		if got.Init.Body != strings.ToValidUTF8(want.Init.Body, "\uFFFD") {
			t.Errorf("%q: got %q, want %q", text, got.Init.Body, want.Init.Body)
		}
	})
}
