package mcptool_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/mcptool"
)

// replies are what a server answers, as JSON, by method. List, if set, is the whole message with the tools.
type replies struct{ Tools, Result, List string }

// answer returns the answer to a message; empty for a notification.
func (r replies) answer(message []byte) string {
	var request struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if json.Unmarshal(message, &request) != nil || request.ID == nil {
		return ""
	}
	result := func(text string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, request.ID, text)
	}
	switch request.Method {
	case "initialize":
		return result(`{"protocolVersion":"2025-06-18","serverInfo":{"name":"odd","version":"1"},"capabilities":{"tools":{}}}`)
	case "tools/list":
		if r.List != "" {
			return strings.ReplaceAll(r.List, "ID", string(request.ID))
		}
		return result(r.Tools)
	case "tools/call":
		return result(r.Result)
	case "ping":
		return result(`{}`)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, request.ID)
}

// serveReplies is the test binary as a server with the replies in a file.
func serveReplies(path string) {
	raw, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	var r replies
	if err := json.Unmarshal(raw, &r); err != nil {
		panic(err)
	}
	for in := bufio.NewReader(os.Stdin); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		if answer := r.answer(line); answer != "" {
			fmt.Println(answer)
		}
	}
}

// oddServers opens a server with these replies over each transport.
func oddServers(t *testing.T, r replies) map[string]*mcptool.Server {
	t.Helper()
	var limit time.Duration
	if r.List != "" {
		limit = 3 * time.Second // the library may not answer to what it cannot read
	}
	web := func(write func(w http.ResponseWriter, answer string)) *mcptool.Server {
		served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			body, err := io.ReadAll(q.Body)
			switch answer := r.answer(body); {
			case q.Method != http.MethodPost || err != nil:
				w.WriteHeader(http.StatusMethodNotAllowed)
			case answer == "":
				w.WriteHeader(http.StatusAccepted)
			default:
				write(w, answer)
			}
		}))
		t.Cleanup(served.Close)
		_, p := stdio(t, "")
		p.Allowed.Hosts = outbound.Policy{Hosts: []string{"127.0.0.1"}}
		return open(t, mcptool.Config{Name: "odd", URL: served.URL, TrustHints: true, ConnectTimeout: limit}, p)
	}
	c, p := stdio(t, "replies")
	c.Env["REPLIES_FILE"] = filepath.Join(t.TempDir(), "replies.json")
	c.TrustHints, c.ConnectTimeout = true, limit
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Env["REPLIES_FILE"], raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]*mcptool.Server{
		"JSON over HTTP": web(func(w http.ResponseWriter, answer string) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer)
		}),
		"events over HTTP": web(func(w http.ResponseWriter, answer string) {
			w.Header().Set("Content-Type", "text/event-stream")
			// As odd servers write them: a field without a value, a message on several lines, other line ends.
			fmt.Fprintf(w, ": hello\r\nretry\r\nevent: message\r\ndata: %s\r\n\r\n", strings.ReplaceAll(answer, `,"result":`, ",\r\ndata:\"result\":"))
		}),
		"standard input and output": open(t, c, p),
	}
}

// fineTool is served beside each odd one.
const fineTool = `{"name":"fine","description":"d","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`

// deep returns a list in a list in a list.
func deep(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

func TestAnOddToolTakesNoOtherToolAway(t *testing.T) {
	t.Parallel()
	const schema = `"inputSchema":{"type":"object","properties":{"a":{"type":"string"}}}`
	for name, test := range map[string]struct {
		tool string
		want string // the name of the tool, or the beginning of its problem after a !
	}{
		"null":                         {`null`, "!it is no object: null"},
		"a text":                       {`"odd"`, "!it is no object"},
		"a list":                       {`[]`, "!it is no object"},
		"no name":                      {`{` + schema + `}`, "!its name is no text"},
		"an empty name":                {`{"name":"",` + schema + `}`, "!its name is no text"},
		"a number as its name":         {`{"name":5,` + schema + `}`, "!its name is no text: 5"},
		"a name with dots and spaces":  {`{"name":"get file.v2/x",` + schema + `}`, "get_file_v2_x"},
		"a name in another script":     {`{"name":"grüße",` + schema + `}`, "gr__e"},
		"a name of 65 characters":      {`{"name":"` + strings.Repeat("n", 65) + `",` + schema + `}`, "!the name"},
		"the name of another one":      {`{"name":"fine",` + schema + `}`, "!two tools have the name \"fine\""},
		"a name of the runtime":        {`{"name":"__finish__",` + schema + `}`, "!"},
		"no description":               {`{"name":"odd",` + schema + `}`, "odd"},
		"null as its description":      {`{"name":"odd","description":null,` + schema + `}`, "odd"},
		"a description of parts":       {`{"name":"odd","description":[{"type":"text"}],` + schema + `}`, "odd"},
		"a number as its title":        {`{"name":"odd","title":5,` + schema + `}`, "odd"},
		"texts as its hints":           {`{"name":"odd","annotations":{"readOnlyHint":"true","title":1},` + schema + `}`, "odd"},
		"a list of annotations":        {`{"name":"odd","annotations":["readOnly"],` + schema + `}`, "odd"},
		"a text as its icons":          {`{"name":"odd","icons":"icon.png",` + schema + `}`, "odd"},
		"a list as its metadata":       {`{"name":"odd","_meta":[],` + schema + `}`, "odd"},
		"true as its output schema":    {`{"name":"odd","outputSchema":true,` + schema + `}`, "odd"},
		"a number in its outputSchema": {`{"name":"odd","outputSchema":{"maximum":1e999},` + schema + `}`, "odd"},
		"no input schema":              {`{"name":"odd"}`, "odd"},
		"null as its input schema":     {`{"name":"odd","inputSchema":null}`, "odd"},
		"true as its input schema":     {`{"name":"odd","inputSchema":true}`, "odd"},
		"false as its input schema":    {`{"name":"odd","inputSchema":false}`, "!its input schema is no object"},
		"a text as its input schema":   {`{"name":"odd","inputSchema":"{}"}`, "!its input schema is no object"},
		"a list as its input schema":   {`{"name":"odd","inputSchema":[]}`, "!its input schema is no object"},
		"no type":                      {`{"name":"odd","inputSchema":{"anyOf":[{"required":["a"]},{"required":["b"]}]}}`, "odd"},
		"null as its type":             {`{"name":"odd","inputSchema":{"type":null}}`, "odd"},
		"object or null as its type":   {`{"name":"odd","inputSchema":{"type":["object","null"]}}`, "odd"},
		"a number without a float64":   {`{"name":"odd","inputSchema":{"type":"object","maximum":1e999}}`, "!its input schema cannot be read"},
		"a header with a space":        {`{"name":"odd","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"a b"}}}}`, "!an x-mcp-header in its input schema is not valid"},
		"an unknown type":              {`{"name":"odd","inputSchema":{"type":"object","properties":{"a":{"type":"file"}}}}`, "!"},
		"an input schema of a list":    {`{"name":"odd","inputSchema":{"type":"array"}}`, "!"},
		"a default 2,000 levels deep":  {`{"name":"odd","inputSchema":{"type":"object","default":` + deep(2000) + `}}`, "odd"},
		"a schema 2,000 levels deep":   {`{"name":"odd","inputSchema":` + strings.Repeat(`{"properties":{"a":`, 2000) + "{}" + strings.Repeat("}}", 2000) + `}`, "!"},
		"a reference to another site":  {`{"name":"odd","inputSchema":{"type":"object","properties":{"a":{"$ref":"https://example.com/a.json"}}}}`, "!"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for transport, s := range oddServers(t, replies{Tools: `{"tools":[` + fineTool + `,` + test.tool + `],"nextCursor":null,"_meta":null}`, Result: `{"content":[]}`}) {
				var names []string
				for _, one := range s.Tools() {
					names = append(names, one.Name)
				}
				want := []string{"fine"}
				problem, unusable := strings.CutPrefix(test.want, "!")
				if !unusable {
					want = append(want, test.want)
					slices.Sort(want)
				}
				if !slices.Equal(names, want) {
					t.Errorf("%s: tools = %q, want %q", transport, names, want)
				}
				problems := s.Problems()
				if unusable != (len(problems) == 1 && problems[0].Tool != "" && strings.HasPrefix(problems[0].Text, problem)) || !unusable && len(problems) > 0 {
					t.Errorf("%s: problems = %.300v, want %q", transport, problems, problem)
				}
			}
		})
	}
}

func TestAHostileListOfToolsDoesNotReachTheLibrary(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{
		"the key of the result is escaped": `{"jsonrpc":"2.0","id":ID,"r\u0065sult":{"tools":[null]}}`,
		"the key of the tools is escaped":  `{"jsonrpc":"2.0","id":ID,"result":{"t\u006fols":[null]}}`,
		"the tools are there twice":        `{"jsonrpc":"2.0","id":ID,"result":{"tools":[null],"tools":null}}`,
		"the result is there twice":        `{"jsonrpc":"2.0","id":ID,"result":{"tools":[null]},"result":{"tools":[null]}}`,
		"a batch":                          `[{"jsonrpc":"2.0","id":ID,"result":{"tools":[null]}}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for transport, s := range oddServers(t, replies{List: reply, Result: `{"content":[]}`}) {
				if tools := s.Tools(); len(tools) > 0 {
					t.Errorf("%s: tools = %v, want none", transport, tools)
				}
			}
		})
	}
}

func TestAnOddResultIsReadAndEndsNoSession(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ result, want string }{
		"plain":                        {`{"content":[{"type":"text","text":"hi"}]}`, `"hi"`},
		"no content":                   {`{}`, `""`},
		"null as its content":          {`{"content":null,"structuredContent":{"n":1}}`, `{"n":1}`},
		"a text as its content":        {`{"content":"hi"}`, `"hi"`},
		"one part as its content":      {`{"content":{"type":"text","text":"hi"}}`, `"hi"`},
		"texts as its content":         {`{"content":["hi",{"type":"text","text":"you"}]}`, `"hi\nyou"`},
		"a part of an unknown kind":    {`{"content":[{"type":"json","json":{"a":1}}]}`, `"{\"type\":\"json\",\"json\":{\"a\":1}}"`},
		"a part without a kind":        {`{"content":[{"text":"hi"}]}`, `"{\"text\":\"hi\"}"`},
		"null as a part":               {`{"content":[null,{"type":"text","text":"hi"}]}`, `"\nhi"`},
		"a number as a text":           {`{"content":[{"type":"text","text":5}]}`, `"{\"type\":\"text\",\"text\":5}"`},
		"data that is not base64":      {`{"content":[{"type":"image","data":"%%","mimeType":"image/png"}]}`, `"{\"type\":\"image\",\"data\":\"%%\",\"mimeType\":\"image/png\"}"`},
		"a text as isError":            {`{"content":[{"type":"text","text":"no"}],"isError":"true"}`, "error: no"},
		"null as isError":              {`{"content":[{"type":"text","text":"hi"}],"isError":null}`, `"hi"`},
		"a list as its structure":      {`{"content":[],"structuredContent":[1]}`, `[1]`},
		"a number without a float64":   {`{"content":[{"type":"text","text":"hi"}],"structuredContent":{"n":1e999}}`, `"hi"`},
		"a structure 100 levels deep":  {`{"content":[],"structuredContent":` + deep(100) + `}`, deep(100)},
		"a structure of 4,000,000":     {`{"content":[],"structuredContent":` + deep(4_000_000) + `}`, "error: "},
		"an unfinished structure":      {`{"content":[],"structuredContent":` + strings.Repeat("[", 4_000_000) + `}`, "error: "},
		"a list as the metadata of it": {`{"content":[{"type":"text","text":"hi"}],"_meta":[]}`, `"hi"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for transport, s := range oddServers(t, replies{Tools: `{"tools":[` + fineTool + `]}`, Result: test.result}) {
				for range 2 { // the session lives on, or there is another one
					if got := call(t.Context(), t, s, "fine", `{}`); got != test.want && (test.want != "error: " || !strings.HasPrefix(got, test.want)) {
						t.Errorf("%s: got %.300s, want %.300s", transport, got, test.want)
					}
				}
			}
		})
	}
}
