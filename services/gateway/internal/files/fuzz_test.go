package files

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// withoutStore extracts files up to their store, which refuses all.
func withoutStore() *Files {
	return New(nil, retry.Policy{Now: time.Now}, Limits{File: 1 << 10, Files: 0, Text: 1 << 20, Body: 1 << 20, Timeout: time.Minute}, "")
}

func FuzzABodyWithoutFilesIsCopiedAsItIs(f *testing.F) {
	for _, seed := range []string{
		`{"id":"s","messages":[{"role":"user","parts":[{"type":"file","url":"https://a/\u00e9\ud83d\ude00\n"}]}]}`,
		`{"message":{"parts":[{"url":"data:text/plain,a"},{"url":7},{"\u0075rl":"x"}]}}`,
		`{"messages":[{"parts":[{"url":"` + strings.Repeat("ü", inlineURL) + `"}]}]}`,
		`{"messages":{"parts":[{"url":"x"}]},"message":[{"parts":{}}]}`, `[{"url":"\ud800"}]`, `{"a":"\`, `{"message":{"parts":[{"url":"\u00`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		files := withoutStore()
		got, err := files.Extract(context.Background(), "acme", bytes.NewReader(text), func() error { return nil })
		slow, slowErr := files.Extract(context.Background(), "acme", iotest.OneByteReader(bytes.NewReader(text)), func() error { return nil })
		if fault.ReasonOf(err) != fault.ReasonOf(slowErr) || err == nil && !bytes.Equal(got, slow) {
			t.Errorf("%q: at once %q, %v; byte by byte %q, %v", text, got, err, slow, slowErr)
		}
		if err != nil {
			if _, ok := fault.From(err); !ok {
				t.Errorf("%q: got %v, want a fault", text, err)
			}
			return
		}
		if !json.Valid(text) {
			return // its decoder refuses the copy
		}
		var before, after any
		if json.Unmarshal(text, &before) != nil {
			return
		}
		if err := json.Unmarshal(got, &after); err != nil || !strings.Contains(string(text), "url") && !reflect.DeepEqual(before, after) {
			t.Errorf("%q was copied as %q, %v", text, got, err)
		}
	})
}

func FuzzADataURLIsDecodedAsItWasEncoded(f *testing.F) {
	f.Add([]byte("hello"), "data:image/png;base64,aGk=")
	f.Add([]byte{0, 255}, "data:,%41%zz")
	f.Add([]byte{}, "data:;charset=utf-8;base64,a-_/+=\n=")
	f.Fuzz(func(t *testing.T, data []byte, url string) {
		if got, err := decodeURL("data:image/png;base64," + base64.StdEncoding.EncodeToString(data)); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%x was decoded as %x, %v", data, got, err)
		}
		got, err := decodeURL("data:" + url)
		if err != nil {
			if _, ok := fault.From(err); !ok {
				t.Errorf("%q: got %v, want a fault", url, err)
			}
			return
		}
		if len(got) > len(url) {
			t.Errorf("%q was decoded to %d bytes", url, len(got))
		}
	})
}

// decodeURL decodes a data: URL in pieces of three bytes.
func decodeURL(url string) ([]byte, error) {
	c := &content{files: New(nil, retry.Policy{Now: time.Now}, Limits{File: 1 << 20, Files: 1}, "")}
	defer c.release()
	d := &dataURL{to: c}
	for rest := []byte(url); len(rest) > 0; {
		n := min(3, len(rest))
		if _, err := d.Write(rest[:n]); err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	data := []byte{}
	err := c.each(func(piece []byte) error {
		data = append(data, piece...)
		return nil
	})
	return data, err
}
