package files_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/files"
	"github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

const mebibyte = 1 << 20

var limits = files.Limits{File: 20 * mebibyte, Files: 100, Text: 8 * mebibyte, Body: 256 * mebibyte, Timeout: time.Minute}

// open returns a Files on a real state service, and a client of that.
func open(t *testing.T, l files.Limits) (*files.Files, statev1.FileServiceClient) {
	t.Helper()
	world := gatewaytest.New(t)
	conn, err := rpc.Dial(world.Network, gatewaytest.StateAddress, rpc.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	client := statev1.NewFileServiceClient(conn)
	return files.New(client, retry.Policy{Now: time.Now}, l, ""), client
}

func nothing() error { return nil }

func random(size int) []byte {
	data := make([]byte, size)
	_, _ = rand.Read(data) // never fails
	return data
}

// content returns the bytes of a file.
func content(t *testing.T, client statev1.FileServiceClient, id string) []byte {
	t.Helper()
	stream, err := client.ReadFile(t.Context(), &statev1.ReadFileRequest{Tenant: "acme", FileId: id})
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	for {
		part, err := stream.Recv()
		if err == io.EOF {
			return data
		}
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, part.GetData()...)
	}
}

func TestALargeDataURLOfAPartBecomesAReference(t *testing.T) {
	t.Parallel()
	f, client := open(t, limits)
	data := random(30_000)
	standard, urlSafe := base64.StdEncoding.EncodeToString(data), base64.RawURLEncoding.EncodeToString(data)
	for name, tc := range map[string]struct{ body, mediaType string }{
		"a message of messages": {`{"messages":[{"parts":[{"type":"file","url":"data:image/x;base64,` + standard + `"}]}]}`, "image/x"},
		"the message":           {`{"message":{"parts":[{"url":"DATA:image/x;name=a.png;BASE64,` + standard + `","type":"file"}]}}`, "image/x"},
		"the other alphabet":    {`{"messages":[{"parts":[{"url":"data:image/x;base64,` + urlSafe + `"}]}]}`, "image/x"},
		"escaped slashes":       {`{"messages":[{"parts":[{"url":"data:image\/x;base64,` + strings.ReplaceAll(standard, "/", `\/`) + `"}]}]}`, "image/x"},
		"escaped letters":       {`{"messages":[{"parts":[{"\u0075rl":"\u0064ata:image/x;base64,` + strings.ReplaceAll(standard, "A", `\u0041`) + `"}]}]}`, "image/x"},
		"percent escapes":       {`{"messages":[{"parts":[{"url":"data:image/x;base64,` + url.QueryEscape(standard) + `"}]}]}`, "image/x"},
		"plain bytes":           {`{"messages":[{"parts":[{"url":"data:image/x,` + strings.ReplaceAll(url.QueryEscape(string(data)), "+", "%20") + `"}]}]}`, "image/x"},
		"line breaks":           {`{"messages":[{"parts":[{"url":"data:image/x;base64,` + strings.ReplaceAll(standard, "B", `B\r\n`) + `"}]}]}`, "image/x"},
		"no media type":         {`{"messages":[{"parts":[{"url":"data:;base64,` + standard + `"}]}]}`, "application/octet-stream"},
		"spaces, other parts":   {` { "x" : [ { "url" : 1 } ] , "messages" : [ { "parts" : [ 1 , "url" , { "a" : [ { } ] , "url" : "data:image/x;base64,` + standard + `" } ] } ] } `, "image/x"},
	} {
		for how, from := range map[string]io.Reader{"whole": strings.NewReader(tc.body), "in bytes": iotest.OneByteReader(strings.NewReader(tc.body))} {
			out, err := f.Extract(t.Context(), "acme", from, nothing)
			if err != nil || len(out) > 300 || !json.Valid(out) {
				t.Errorf("%s, %s: got %d bytes, %v", name, how, len(out), err)
				continue
			}
			_, id, _ := strings.Cut(string(out), eventv1.FileURL(""))
			id, _, _ = strings.Cut(id, `"`)
			got, err := client.GetFiles(t.Context(), &statev1.GetFilesRequest{Tenant: "acme", FileIds: []string{id}})
			if err != nil || len(got.GetFiles()) != 1 || got.GetFiles()[0].GetMediaType() != tc.mediaType || !bytes.Equal(content(t, client, id), data) {
				t.Errorf("%s, %s: got the file %v, %v", name, how, got, err)
			}
		}
	}
}

func TestAllElseInABodyStays(t *testing.T) {
	t.Parallel()
	f, _ := open(t, limits)
	large := "data:image/png;base64," + strings.Repeat("AAAA", 4000)
	for _, body := range []string{
		`{}`, `[]`, `null`, `"x"`, `1`, ` `, `{"messages":1}`, `{"messages":[[[{"parts":[{"url":"` + large + `"}]}]]]}`,
		`{"messages":[{"parts":[{"type":"tool-screenshot","output":{"url":"` + large + `"}}]}]}`, // the result of a tool
		`{"messages":[{"parts":[{"type":"text","text":"` + large + `"}]}]}`,
		`{"messages":[{"url":"` + large + `","metadata":{"parts":[{"url":"` + large + `"}]}}]}`,
		`{"url":"` + large + `","parts":[{"url":"` + large + `"}],"extra":{"messages":[{"parts":[{"url":"` + large + `"}]}]}}`,
		`{"messages":[{"parts":[{"url":"data:image/png;base64,AAAA"}]}]}`,
		`{"messages":[{"parts":[{"url":"https://example.com/` + strings.Repeat(`\u00e9\\\"x`, 3000) + `"}]}]}`,
		`{"messages":[{"parts":[{"url":"https://example.com/` + strings.Repeat("é", 6000) + `"},{"url":"https://example.com/` + strings.Repeat("☃", 6000) + `"}]}]}`,
		`{"messages":[{"parts":[{"url":"https://example.com/a.png?q=\ud83d\ude00"},{"url":["` + large + `"]},{"url":{"url":"` + large + `"}}]}]}`,
		`{"messages":[{"parts":[{"text":"\"\\\\\"","url":""}],"\\\"parts":[{"url":"` + large + `"}]}]}`,
	} {
		for how, from := range map[string]io.Reader{"whole": strings.NewReader(body), "in bytes": iotest.OneByteReader(strings.NewReader(body))} {
			out, err := f.Extract(t.Context(), "acme", from, nothing)
			var got, want any
			_, _ = json.Unmarshal(out, &got), json.Unmarshal([]byte(body), &want) // a blank text is neither
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%.100s, %s: got %.100s, %v", body, how, out, err)
			}
		}
	}
}

func TestABodyThatIsNotJSONRemainsNotJSON(t *testing.T) {
	t.Parallel()
	f, _ := open(t, limits)
	large := `{"messages":[{"parts":[{"url":"data:image/png;base64,` + strings.Repeat("AAAA", 4000)
	for _, body := range []string{
		``, `{`, `{"messages":[{"parts":[{"url":"`, `{"messages":[{"parts":[{"url":"\`, `{"messages":[{"parts":[{"url":"\u00`, large, large + `\`, `}}}]`, `{"a"`, `"\`,
		`{"messages":[{"parts":[{"url":}]}]}`, `{"messages":[{"parts":[{"url" "x"}]}]}`,
	} {
		out, err := f.Extract(t.Context(), "acme", strings.NewReader(body), nothing)
		if err == nil && json.Valid(out) {
			t.Errorf("%.60s: got %.60s", body, out)
		}
	}
	for _, body := range []string{`{"messages":[{"parts":[{"url":"\x"}]}]}`, strings.Repeat("[", 20_000)} {
		if _, err := f.Extract(t.Context(), "acme", strings.NewReader(body), nothing); fault.ReasonOf(err) != "BODY_INVALID" {
			t.Errorf("%.60s: got %v, want BODY_INVALID", body, err)
		}
	}
	if _, err := f.Extract(t.Context(), "acme", io.MultiReader(strings.NewReader(`{"a":`), iotest.ErrReader(io.ErrUnexpectedEOF)), nothing); fault.ReasonOf(err) != "BODY_INVALID" {
		t.Errorf("a cut body: got %v, want BODY_INVALID", err)
	}
}

// source produces a body, and samples the live memory while it is read.
type source struct {
	io.Reader
	until, peak uint64
	read        uint64
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if s.read += uint64(n); s.read >= s.until {
		s.until += 16 * mebibyte
		s.peak = max(s.peak, live())
	}
	return n, err
}

// live returns the bytes that are reachable.
func live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The test measures the memory of the process, so it runs alone.
func TestALargeBodyIsReadWithLittleMemory(t *testing.T) { //nolint:paralleltest // see above
	f, _ := open(t, limits)
	const photos, size = 14, 11 * mebibyte // more than 200 MiB as base64
	photo := random(size)
	encoded := base64.StdEncoding.EncodeToString(photo)
	parts := []io.Reader{strings.NewReader(`{"messages":[{"parts":[`)}
	for range photos {
		parts = append(parts, strings.NewReader(`{"type":"file","url":"data:image/x;base64,`), strings.NewReader(encoded), strings.NewReader(`"},`))
	}
	body := &source{Reader: io.MultiReader(append(parts, strings.NewReader(`{}]}]}`))...)}
	if _, err := f.Put(t.Context(), "acme", "image/x", bytes.NewReader(photo)); err != nil { // the state service of the test keeps it in memory
		t.Fatal(err)
	}
	before := live()
	out, err := f.Extract(t.Context(), "acme", body, nothing)
	if err != nil || strings.Count(string(out), eventv1.FileURL("")) != photos || body.read < 200*mebibyte {
		t.Fatalf("got %d bytes of %d, %v", len(out), body.read, err)
	}
	const bound = size + 8*mebibyte
	if body.peak > before+bound {
		t.Errorf("a body of %d MiB took %d MiB, want at most %d: one file and a little", body.read>>20, (body.peak-before)>>20, bound>>20)
	}
	if after := live(); after > before+4*mebibyte {
		t.Errorf("%d MiB remain", (after-before)>>20)
	}
}

func TestTheMemoryOfRefusedBodiesIsGivenBack(t *testing.T) {
	t.Parallel()
	l := limits
	l.Memory = httpapi.NewPool(mebibyte, 0, 0) // of one file
	f, _ := open(t, l)
	file := func(size int) string {
		return fmt.Sprintf(`{"messages":[{"parts":[{"url":"data:image/x;base64,%s"}]}]}`, base64.StdEncoding.EncodeToString(random(size)))
	}
	for range 3 {
		if _, err := f.Extract(t.Context(), "acme", strings.NewReader(file(mebibyte+1)), nothing); fault.ReasonOf(err) != "TOO_MANY_FILES" {
			t.Errorf("got %v, want TOO_MANY_FILES", err)
		}
		if _, err := f.Extract(t.Context(), "acme", strings.NewReader(file(mebibyte)), nothing); err != nil {
			t.Errorf("got %v, want the memory free again", err)
		}
	}
}

// readerFunc is a function as an io.Reader.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestRequestsShareTheMemoryForFiles(t *testing.T) {
	t.Parallel()
	l := limits
	l.File, l.Memory = 200_000, httpapi.NewPool(files.MemoryOf(200_000), 0, 0) // one file at once
	f, _ := open(t, l)
	put := func(behind io.Reader) error {
		_, err := f.Put(t.Context(), "acme", "image/x", io.MultiReader(bytes.NewReader(random(9000)), behind))
		return err
	}
	other := readerFunc(func([]byte) (int, error) {
		if err := put(strings.NewReader("")); fault.ReasonOf(err) != "TOO_MANY_FILES" || fault.KindOf(err) != fault.Exhausted {
			t.Errorf("beside another file: got %v, want TOO_MANY_FILES", err)
		}
		return 0, io.EOF
	})
	if err := put(other); err != nil {
		t.Error(err)
	}
}
