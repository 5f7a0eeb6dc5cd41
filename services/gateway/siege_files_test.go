//go:build !race

package gateway_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// attach uploads a file and sends it in a message. It returns the id of the file.
func (s *siege) attach(credential, tenant, session, text string) string {
	s.t.Helper()
	var file struct{ ID string }
	got := s.plain(credential, http.MethodPost, "/files", text, "Content-Type", "text/plain").send()
	if _, body, _ := strings.Cut(got.text, " "); got.status != http.StatusOK || json.Unmarshal([]byte(body), &file) != nil {
		s.t.Fatalf("got %d %s", got.status, got.text)
	}
	s.succeed(credential, http.MethodPost, "/chat", chatOf(session, photoMessage("m1", "look", "/files/"+file.ID)))
	run := s.AwaitRun(s.t, tenant, session, nil)
	run.Show(1, Started(), Text("One"))
	run.Complete(AssistantMessage(1, "One"))
	return file.ID
}

// fileReads returns requests for the bytes of a file in each form.
func (s *siege) fileReads(credential, id, tag string) (all []attempt) {
	for _, headers := range [][]string{
		nil, {"Range", "bytes=0-"}, {"Range", "bytes=-5"}, {"Range", "bytes=0-1,3-4"}, {"Range", "bytes=900000-"}, {"Range", "lines=1"},
		{"If-None-Match", tag}, {"If-None-Match", "*"}, {"If-Match", tag}, {"If-Match", `"another"`}, {"If-Range", tag, "Range", "bytes=0-3"},
		{"If-Modified-Since", "Mon, 02 Jan 2090 15:04:05 GMT"}, {"If-Unmodified-Since", "Mon, 02 Jan 2006 15:04:05 GMT"},
		{"Accept-Encoding", "gzip"}, {"Cache-Control", "only-if-cached"}, {"X-Forwarded-Host", "cache.example.com"}, {"Sec-Fetch-Dest", "image", "Sec-Fetch-Site", "cross-site"},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			for _, path := range []string{"/files/" + id, "/files/" + id + "?key=1", "/files/%66" + id[1:], "/files/./" + id, "/files/" + id + "/"} {
				all = append(all, s.plain(credential, method, path, "", headers...))
			}
		}
	}
	return all
}

// attackErasedFiles reads files whose last session or whose user was erased, and sends them on.
func (s *siege) attackErasedFiles(t *testing.T, keys map[string]string) (leaks []leak) {
	t.Helper()
	ofSession := s.attach(keys["alice"], "acme", "with a file", secret+" of a session")
	ofUser := s.attach(keys["zoe"], "acme", "of zoe", secret+" of a user")
	ofTenant := s.attach(keys["foreign-admin"], "other", "of another tenant", secret+" of a tenant")
	kept := s.attach(keys["alice"], "acme", "kept", secret+" kept")
	s.attach(keys["zoe"], "acme", "also of zoe", secret+" kept")
	tags := map[string]string{}
	for _, id := range []string{ofSession, ofUser, ofTenant, kept} {
		tags[id] = s.request(t, http.MethodGet, "/files/"+id, "").Header.Get("ETag")
		if shown := s.readable(s.fileReads("", id, tags[id])); shown < 20 {
			t.Errorf("a file is readable in %d ways before it is erased, so the test would see no leak", shown)
		}
	}
	s.succeed(keys["alice"], http.MethodDelete, "/sessions/with%20a%20file", "")
	s.succeed(keys["admin"], http.MethodDelete, "/users/zoe", "")
	s.succeed(keys["foreign-admin"], http.MethodDelete, "/tenant", "")
	for _, id := range []string{ofSession, ofUser, ofTenant} {
		for name, credential := range map[string]string{
			"nobody": "", "its user": keys["alice"], "another user": keys["mallory"], "an admin": keys["admin"], "an admin of another tenant": keys["foreign-admin"],
		} {
			for _, a := range s.fileReads(credential, id, tags[id]) {
				// A path that is cleaned is answered with a redirect, whatever it names.
				switch answer := s.send(a); {
				case strings.Contains(answer.text, secret):
					leaks = append(leaks, leak{name, a.what, id, fmt.Sprintf("got %d %s", answer.status, answer.text)})
				case answer.status != http.StatusNotFound && answer.status != http.StatusTemporaryRedirect && answer.status != http.StatusMovedPermanently:
					leaks = append(leaks, leak{name, a.what, id, fmt.Sprintf("got %d, want 404 as for an unknown file", answer.status)})
				}
			}
		}
		for name, credential := range map[string]string{"its user": keys["alice"], "a server": keys["server"], "an admin of another tenant": keys["foreign-admin"]} {
			for _, url := range []string{"/files/" + id, s.url + "/files/" + id, "https://elsewhere.example/files/" + id, "holdfast-file:" + id} {
				body := chatOf("with an erased file", photoMessage("m1", "look", url))
				for _, a := range []attempt{
					s.plain(credential, http.MethodPost, "/chat", body),
					{what: "GET /chat/ws", send: func() outcome {
						return s.converse("/chat/ws", []string{`{"type":"send","requestId":"r1",` + body[1:]}, credential, false)
					}},
				} {
					if answer := s.send(a); !strings.Contains(answer.text, "FILE_NOT_FOUND") {
						leaks = append(leaks, leak{name, a.what, id, fmt.Sprintf("got %d %.300s, want FILE_NOT_FOUND", answer.status, answer.text)})
					}
				}
			}
		}
	}
	if shown := s.readable(s.fileReads("", kept, tags[kept])); shown < 20 {
		t.Errorf("a file of another session is readable in %d ways after the erasure of one with the same bytes", shown)
	}
	return leaks
}

// readable returns how many of the requests show the bytes.
func (s *siege) readable(all []attempt) (n int) {
	for _, a := range all {
		if strings.Contains(a.send().text, secret) {
			n++
		}
	}
	return n
}

// attackRanges asks for many parts of a file, and measures what a request costs.
func (s *siege) attackRanges(t *testing.T, keys map[string]string) (leaks []leak) {
	t.Helper()
	const size = 300_000
	path := "/files/" + s.attach(keys["alice"], "acme", "with a long file", strings.Repeat("x", size))
	random := rand.New(rand.NewPCG(1, 2))
	for range fewestAttemptsOfARule {
		var ranges []string
		for range 1 + random.IntN(1+random.IntN(2000)) {
			from := random.IntN(size)
			switch to := from + random.IntN(1+random.IntN(size)); random.IntN(5) {
			case 0:
				ranges = append(ranges, fmt.Sprintf("%d-", from))
			case 1:
				ranges = append(ranges, fmt.Sprintf("-%d", from))
			case 2:
				ranges = append(ranges, "")
			default:
				ranges = append(ranges, fmt.Sprintf("%d-%d", from, to))
			}
		}
		const most = 5 // the file, and each of four parts
		before := s.State.FileReads()
		a := s.plain("", http.MethodGet, path, "", "Range", "bytes="+strings.Join(ranges, ","))
		answer := s.send(a)
		if reads := s.State.FileReads() - before; reads > most || len(answer.text) > size+10_000 {
			leaks = append(leaks, leak{"nobody", "GET " + path, fmt.Sprintf("%d ranges", len(ranges)), fmt.Sprintf("%d reads and %d bytes", reads, len(answer.text))})
		}
	}
	return leaks
}
