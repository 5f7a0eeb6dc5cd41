package gateway_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// photo returns random bytes that begin like a PNG.
func photo(size int) []byte {
	data := make([]byte, size)
	_, _ = rand.Read(data) // never fails
	copy(data, "\x89PNG\x0d\x0a\x1a\x0a")
	return data
}

// unknownFile is the id of a file that does not exist.
const unknownFile = "file_aaaaaaaaaaaaaaaaaaaaaaaaaa"

func pngURL(data []byte) string {
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(data)
}

// photoMessage returns the JSON of a message with a text and files.
func photoMessage(id, text string, urls ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"id":%q,"role":"user","parts":[`, id)
	for _, url := range urls {
		fmt.Fprintf(&b, `{"type":"file","mediaType":"image/png","filename":"photo.png","url":"%s"},`, url)
	}
	fmt.Fprintf(&b, `{"type":"text","text":%q}]}`, text)
	return b.String()
}

func chatOf(session string, messages ...string) string {
	return fmt.Sprintf(`{"id":%q,"messages":[%s],"trigger":"submit-message"}`, session, strings.Join(messages, ","))
}

// putFile stores a file directly, and returns its id.
func (h *fixture) putFile(t *testing.T, tenant, mediaType string, data []byte) string {
	t.Helper()
	stream, err := h.State.Files().PutFile(t.Context())
	if err == nil {
		err = stream.Send(&statev1.PutFileRequest{Part: &statev1.PutFileRequest_Head{Head: &statev1.PutFileHead{Tenant: tenant, MediaType: mediaType}}})
	}
	for piece := range slices.Chunk(data, 1<<20) {
		if err == nil {
			err = stream.Send(&statev1.PutFileRequest{Part: &statev1.PutFileRequest_Data{Data: piece}})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := stream.CloseAndRecv()
	if err != nil {
		t.Fatal(err)
	}
	return got.GetFile().GetFileId()
}

// fileURLs returns the URLs of the files in the conversation, oldest first.
func (h *fixture) fileURLs(t *testing.T, session string, headers ...string) (urls []string) {
	t.Helper()
	var page struct {
		Messages []struct{ Parts []struct{ Type, URL string } }
	}
	if err := json.Unmarshal([]byte(text(t, h.request(t, http.MethodGet, "/messages?sessionId="+session, "", headers...))), &page); err != nil {
		t.Fatal(err)
	}
	for _, m := range page.Messages {
		for _, p := range m.Parts {
			if p.Type == "file" {
				urls = append(urls, p.URL)
			}
		}
	}
	return urls
}

func TestEightPhotosInTheHistoryDoNotMakeLaterMessagesTooLarge(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	var history []string
	var photos [][]byte
	var run *Run
	send := func(id string, urls ...string) {
		t.Helper()
		history = append(history, photoMessage(id, "look", urls...))
		answer := h.chat(t, chatOf("s1", history...))
		run = h.AwaitRun(t, "default", "s1", run)
		run.Complete(AssistantMessage(1, "Nice."))
		answer.rest()
		history = append(history, fmt.Sprintf(`{"id":"a-%s","role":"assistant","parts":[{"type":"text","text":"Nice."}]}`, id))
	}
	for i := range 4 {
		first, second := photo(5<<20), photo(5<<20)
		photos = append(photos, first, second)
		send(fmt.Sprint("p", i), pngURL(first), pngURL(second))
	}
	for i := range 4 {
		send(fmt.Sprint("m", i))
	}
	if got := h.State.Uploads(); got != len(photos) {
		t.Errorf("got %d uploads of %d photos, want one for each", got, len(photos))
	}
	urls := h.fileURLs(t, "s1")
	if len(urls) != len(photos) || slices.Contains(urls, "") {
		t.Fatalf("got the files %v", urls)
	}
	for i, url := range urls {
		got := text(t, h.request(t, http.MethodGet, strings.TrimPrefix(url, h.url), ""))
		if !bytes.Equal([]byte(got), photos[i]) {
			t.Errorf("photo %d: got %d other bytes", i, len(got))
		}
	}
}

func TestAFileMayHaveTwentyMebibytes(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatOf("s1", photoMessage("m1", "look", pngURL(photo(20<<20)))))
	wantFault(t, h.request(t, http.MethodPost, "/chat", chatOf("s2", photoMessage("m1", "look", pngURL(photo(20<<20+1)))), "Accept", "application/json"), http.StatusRequestEntityTooLarge, "FILE_TOO_LARGE")
}

func TestTheFilesOfARequestAreBounded(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxFiles, c.MaxUploadBytes = 2, 200_000 })
	urls := []string{pngURL(photo(9000)), pngURL(photo(9001)), pngURL(photo(9002))}
	try := func(status int, code string, urls ...string) {
		t.Helper()
		wantFault(t, h.request(t, http.MethodPost, "/chat", chatOf("s1", photoMessage("m1", "look", urls...)), "Accept", "application/json"), status, code)
	}
	try(http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE", urls...)
	try(http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE", pngURL(photo(200_000)))
	try(http.StatusBadRequest, "FILE_INVALID", "data:image/png;base64,"+strings.Repeat("!", 9000))
	try(http.StatusBadRequest, "FILE_INVALID", "data:image/png;base64,"+base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("<html>"), 2000)))
	try(http.StatusBadRequest, "FILE_INVALID", "http://example.com/a.png")
	h.chat(t, chatOf("s1", photoMessage("m1", "look", urls[:2]...)))
}

func TestAFileIsServedToWhoeverKnowsItsID(t *testing.T) {
	t.Parallel()
	h, acme, _ := openWithKeys(t)
	data := photo(3 << 20)
	path := "/files/" + h.putFile(t, "acme", "image/png", data)
	whole := h.request(t, http.MethodGet, path, "")
	if got := text(t, whole); got != string(data) {
		t.Errorf("got %d other bytes", len(got))
	}
	for name, want := range map[string]string{
		"Content-Type": "image/png", "Content-Disposition": "inline", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox",
		"Cache-Control": "private, immutable, max-age=31536000", "Content-Length": fmt.Sprint(len(data)), "Accept-Ranges": "bytes",
	} {
		if got := whole.Header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	part := h.request(t, http.MethodGet, path, "", "Range", "bytes=1048570-2097155")
	if got := text(t, part); part.StatusCode != http.StatusPartialContent || got != string(data[1048570:2097156]) {
		t.Errorf("a range: got %d and %d bytes", part.StatusCode, len(got))
	}
	several := h.request(t, http.MethodGet, path, "", "Range", "bytes=0-1,5-6,2000000-2000001")
	if got := text(t, several); several.StatusCode != http.StatusPartialContent || !strings.Contains(got, string(data[2000000:2000002])) {
		t.Errorf("ranges: got %d and %d bytes", several.StatusCode, len(got))
	}
	if again := h.request(t, http.MethodGet, path, "", "If-None-Match", whole.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
		t.Errorf("got %d for a known file, want 304", again.StatusCode)
	}
	if beyond := h.request(t, http.MethodGet, path, "", "Range", "bytes=9999999-"); beyond.StatusCode != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("got %d beyond the end, want 416", beyond.StatusCode)
	}
	if head := h.request(t, http.MethodHead, path, ""); head.StatusCode != http.StatusOK || head.Header.Get("Content-Length") != fmt.Sprint(len(data)) || text(t, head) != "" {
		t.Errorf("HEAD: got %d %v", head.StatusCode, head.Header)
	}
	script := h.request(t, http.MethodGet, "/files/"+h.putFile(t, "acme", "image/svg+xml", []byte("<svg onload='alert(1)'/>")), "")
	if got := script.Header.Get("Content-Disposition"); got != "attachment" {
		t.Errorf("a file that may have scripts: got %q", got)
	}
	for _, id := range []string{"file_unknown", "..", "%2e%2e%2fmessages", strings.Repeat("x", 300), "file_%00", "a%2fb"} {
		if got := h.request(t, http.MethodGet, "/files/"+id, "", "Authorization", acme); got.StatusCode != http.StatusNotFound && got.StatusCode != http.StatusBadRequest && got.StatusCode != http.StatusTemporaryRedirect && got.StatusCode != http.StatusMovedPermanently {
			t.Errorf("%.20s: got %d", id, got.StatusCode)
		}
	}
}

func TestAFileIsUploadedOnceAndSentByItsURL(t *testing.T) {
	t.Parallel()
	h, acme, other := openWithKeys(t)
	wantFault(t, h.request(t, http.MethodPost, "/files", "x"), http.StatusUnauthorized, "API_KEY_MISSING")
	data := photo(100_000)
	var raw, form struct {
		ID, URL, MediaType string
		Size               int64
	}
	if err := json.Unmarshal([]byte(text(t, h.request(t, http.MethodPost, "/files", string(data), "Authorization", acme, "Content-Type", "image/png"))), &raw); err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	parts := multipart.NewWriter(&body)
	_ = parts.WriteField("name", "x")
	file, _ := parts.CreatePart(map[string][]string{"Content-Disposition": {`form-data; name="f"; filename="a.png"`}, "Content-Type": {"image/png"}})
	_, _ = file.Write(data)
	_ = parts.Close()
	if err := json.Unmarshal([]byte(text(t, h.request(t, http.MethodPost, "/files", body.String(), "Authorization", acme, "Content-Type", parts.FormDataContentType()))), &form); err != nil {
		t.Fatal(err)
	}
	if raw.Size != int64(len(data)) || raw.MediaType != "image/png" || raw.URL != h.url+"/files/"+raw.ID || raw != form {
		t.Errorf("got %+v and %+v", raw, form)
	}
	h.request(t, http.MethodPost, "/chat", chatOf("s1", photoMessage("m1", "look", raw.URL)), "Authorization", acme)
	const another = "https://elsewhere.example/files/file_photo1"
	h.request(t, http.MethodPost, "/chat", chatOf("s3", photoMessage("m1", "look", another)), "Authorization", acme)
	if got := h.fileURLs(t, "s3", "Authorization", acme); !slices.Equal(got, []string{another}) {
		t.Errorf("got the files %v, want %s: it is no id of a stored file", got, another)
	}
	if got := h.fileURLs(t, "s1", "Authorization", acme); !slices.Equal(got, []string{raw.URL}) {
		t.Errorf("got the files %v, want %s", got, raw.URL)
	}
	for _, url := range []string{raw.URL, "/files/" + raw.ID, "https://elsewhere.example/files/" + raw.ID, "holdfast-file:" + raw.ID, "https://elsewhere.example/files/" + unknownFile} {
		refused := h.request(t, http.MethodPost, "/chat", chatOf("s2", photoMessage("m1", "look", url)), "Authorization", other, "Accept", "application/json")
		wantFault(t, refused, http.StatusNotFound, "FILE_NOT_FOUND")
	}
}

func TestTheOtherPartsOfAFormAreBounded(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxFileBytes = 64 << 10 })
	upload := func(before int, data []byte) *reply {
		t.Helper()
		var body bytes.Buffer
		parts := multipart.NewWriter(&body)
		_ = parts.WriteField("note", strings.Repeat("x", before))
		file, _ := parts.CreatePart(map[string][]string{"Content-Disposition": {`form-data; name="f"; filename="a.png"`}, "Content-Type": {"image/png"}})
		_, _ = file.Write(data)
		_ = parts.Close()
		return h.request(t, http.MethodPost, "/files", body.String(), "Content-Type", parts.FormDataContentType())
	}
	if got := upload(1<<20-1000, photo(64<<10)); got.StatusCode != http.StatusOK {
		t.Errorf("a short part before the file: got %d %s", got.StatusCode, text(t, got))
	}
	wantFault(t, upload(1<<20-1000, photo(64<<10+1)), http.StatusRequestEntityTooLarge, "FILE_TOO_LARGE")
	wantFault(t, upload(1<<20+60_000, photo(64<<10)), http.StatusRequestEntityTooLarge, "FILE_TOO_LARGE") // the limit is within the file
	wantFault(t, upload(9<<20, photo(10)), http.StatusRequestEntityTooLarge, "FILE_TOO_LARGE")
}

func TestURLsOfFilesAreThoseOfTheClient(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatOf("s1", photoMessage("m1", "look", pngURL(photo(9000)))))
	for name, tc := range map[string]struct {
		headers []string
		want    string
	}{
		"the host":     {nil, h.url},
		"a proxy":      {[]string{"X-Forwarded-Proto", "https", "X-Forwarded-Host", "agents.example.com"}, "https://agents.example.com"},
		"two proxies":  {[]string{"X-Forwarded-Proto", "https, http", "X-Forwarded-Host", "agents.example.com, inner"}, "https://agents.example.com"},
		"a bad scheme": {[]string{"X-Forwarded-Proto", "javascript"}, h.url},
		"a port":       {[]string{"X-Forwarded-Host", "agents.example.com:8443"}, "http://agents.example.com:8443"},
		"an address":   {[]string{"X-Forwarded-Host", "[::1]:8443"}, "http://[::1]:8443"},
		"a path":       {[]string{"X-Forwarded-Host", "evil.example/x"}, h.url},
		"a user":       {[]string{"X-Forwarded-Host", "agents.example.com@evil.example"}, h.url},
		"a query":      {[]string{"X-Forwarded-Host", "evil.example?"}, h.url},
		"a fragment":   {[]string{"X-Forwarded-Host", "evil.example#"}, h.url},
		"markup":       {[]string{"X-Forwarded-Host", `evil.example"><script>`}, h.url},
		"a space":      {[]string{"X-Forwarded-Host", "evil.example x"}, h.url},
	} {
		got := h.fileURLs(t, "s1", tc.headers...)
		if len(got) != 1 || !regexp.MustCompile(`^`+regexp.QuoteMeta(tc.want)+`/files/file_[a-z0-9]+$`).MatchString(got[0]) {
			t.Errorf("%s: got %v, want %s/files/…", name, got, tc.want)
		}
	}
	shot := text(t, h.request(t, http.MethodGet, "/snapshot?sessionId=s1", ""))
	if !strings.Contains(shot, `"url":"`+h.url+`/files/file_`) {
		t.Errorf("got the snapshot %s", shot)
	}
	public := open(t, func(c *gateway.Config) { c.PublicURL = "https://agents.example.com/holdfast/" })
	public.chat(t, chatOf("s1", photoMessage("m1", "look", pngURL(photo(9000)))))
	got := public.fileURLs(t, "s1", "X-Forwarded-Host", "evil.example")
	if len(got) != 1 || !strings.HasPrefix(got[0], "https://agents.example.com/holdfast/files/file_") {
		t.Errorf("got %v, want the configured address", got)
	}
}

func TestAFileIsGoneWithItsSessionAndItsUser(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	var urls []string
	for _, session := range []string{"s1", "s2", "s3"} {
		id := h.putFile(t, "default", "image/png", photo(9000))
		file := &eventv1.Part{Part: &eventv1.Part_File{File: &eventv1.FilePart{Url: eventv1.FileURL(id), MediaType: "image/png"}}}
		if _, err := h.State.StartRun(t.Context(), &statev1.StartRunRequest{
			Tenant: "default", SessionId: session, AgentType: "demo", UserId: "u1",
			Messages: []*eventv1.Message{{Id: "m1", Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{file}}},
		}); err != nil {
			t.Fatal(err)
		}
		urls = append(urls, "/files/"+id)
	}
	wants := func(when string, statuses ...int) {
		t.Helper()
		for i, want := range statuses {
			if got := h.request(t, http.MethodGet, urls[i], "").StatusCode; got != want {
				t.Errorf("%s: got %d for file %d, want %d", when, got, i+1, want)
			}
		}
	}
	wants("at first", 200, 200, 200)
	text(t, h.request(t, http.MethodDelete, "/sessions/s1", ""))
	wants("after a session was deleted", 404, 200, 200)
	text(t, h.request(t, http.MethodDelete, "/users/u1", ""))
	wants("after the user was erased", 404, 404, 404)
}

func TestAnEditKeepsAFileThatTheClientSendsBack(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	data := photo(50_000)
	answer := h.chat(t, chatOf("s1", photoMessage("m1", "look", pngURL(data))))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Complete(AssistantMessage(1, "Nice."))
	answer.rest()
	url := h.fileURLs(t, "s1")[0]
	edit := strings.Replace(chatOf("s1", photoMessage("m1", "look again", url)), `"trigger"`, `"messageId":"m1","trigger"`, 1)
	h.chat(t, edit)
	h.AwaitRun(t, "default", "s1", run)
	if got := h.fileURLs(t, "s1"); !slices.Equal(got, []string{url}) {
		t.Errorf("got the files %v, want %s", got, url)
	}
}

func TestASocketTakesFilesLargerThanItsOtherFrames(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.ReadTimeout = 5 * time.Minute }) // a busy machine takes long for 20 MiB
	s := h.talk(t)
	frame := func(request, session, url string) string {
		return fmt.Sprintf(`{"type":"send","requestId":%q,"id":%q,"messages":[%s],"trigger":"submit-message"}`, request, session, photoMessage("m1", "look", url))
	}
	s.say(frame("r1", "s1", pngURL(photo(12<<20))))
	h.AwaitRun(t, "default", "s1", nil).Complete(AssistantMessage(1, "Nice."))
	s.until(`"end"`)
	s.say(frame("r2", "s2", "data:image/png;base64,"+strings.Repeat("!", 9000)))
	if got := s.until("r2"); !strings.Contains(got, "FILE_INVALID") {
		t.Errorf("got %s, want the request refused", got)
	}
	s.say(frame("r3", "s3", pngURL(photo(20<<20+1))))
	if got := s.until("r3"); !strings.Contains(got, "FILE_TOO_LARGE") {
		t.Errorf("got %s, want the request refused", got)
	}
	if got := h.fileURLs(t, "s1"); len(got) != 1 {
		t.Errorf("got the files %v", got)
	}
}

func TestAPageOfAnotherSiteMayShowAFile(t *testing.T) {
	t.Parallel()
	h := open(t, nil) // without keys, the gateway refuses other requests of pages of other sites
	path := "/files/" + h.putFile(t, "default", "image/png", photo(100))
	image := []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}
	if got := h.request(t, http.MethodGet, path, "", image...); got.StatusCode != http.StatusOK {
		t.Errorf("got %d, want the image", got.StatusCode)
	}
	wantFault(t, h.request(t, http.MethodGet, "/messages?sessionId=s1", "", image...), http.StatusForbidden, "ORIGIN_REFUSED")
}

func TestAFileIsFoundByItsDigest(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	data := photo(100_000)
	digest := sha256.Sum256(data)
	h.chat(t, chatOf("s1", photoMessage("m1", "look", pngURL(data))))
	h.chat(t, chatOf("s2", photoMessage("m1", "look", pngURL(data))))
	if got := h.State.Uploads(); got != 1 {
		t.Errorf("got %d uploads of one photo", got)
	}
	got, err := h.State.Files().FindFile(t.Context(), &statev1.FindFileRequest{Tenant: "default", Sha256: digest[:], MediaType: "image/png"})
	if err != nil || got.GetFile().GetSize() != int64(len(data)) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestConnectKeepsFilesBesideTheirMessages(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	client := agentv1connect.NewAgentServiceClient(http.DefaultClient, h.url)
	data := photo(3 << 20) // more than a message may have
	file := &eventv1.FilePart{MediaType: "image/png", Url: pngURL(data)}
	start := func(session string, part *eventv1.FilePart) error {
		_, err := client.Start(t.Context(), &agentv1.StartRequest{SessionId: session, Messages: []*agentv1.InputMessage{{
			Id: "m1", Text: "look", Parts: []*agentv1.InputPart{{Part: &agentv1.InputPart_File{File: part}}},
		}}})
		return err
	}
	if err := start("s1", file); err != nil {
		t.Fatal(err)
	}
	page, err := client.ListMessages(t.Context(), &agentv1.ListMessagesRequest{SessionId: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	url := page.GetMessages()[0].GetMessage().GetParts()[1].GetFile().GetUrl()
	if got := text(t, h.request(t, http.MethodGet, url, "")); got != string(data) {
		t.Errorf("%s: got %d other bytes", url, len(got))
	}
	if err := start("s2", &eventv1.FilePart{MediaType: "image/png", Url: url}); err != nil {
		t.Errorf("the URL sent back: %v", err)
	}
	if err := start("s3", &eventv1.FilePart{MediaType: "image/png", Url: "/files/" + unknownFile}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("an unknown file: got %v", err)
	}
}
