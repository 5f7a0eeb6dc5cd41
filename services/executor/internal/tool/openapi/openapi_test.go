package openapi

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
)

var update = flag.Bool("update", false, "record the expected tools anew")

// anchorsOf collects the anchors of a document.
type anchorsOf map[string]ast.Node

func (a anchorsOf) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok {
		a[anchor.Name.GetToken().Value] = anchor.Value
	}
	return a
}

// fromText reads a document in JSON or YAML.
func fromText(t *testing.T, text string) (*Document, error) {
	t.Helper()
	if strings.HasPrefix(text, "{") {
		return FromJSON([]byte(text))
	}
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		t.Fatal(err)
	}
	anchors := anchorsOf{}
	ast.Walk(anchors, file.Docs[0].Body)
	return FromYAML(file.Docs[0].Body, anchors)
}

func document(t *testing.T, text string) *Document {
	t.Helper()
	d, err := fromText(t, text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func fromFile(t *testing.T, name string) *Document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return document(t, string(text))
}

// show writes operations for comparison.
func show(operations []Operation) string {
	var out strings.Builder
	for _, o := range operations {
		fmt.Fprintf(&out, "%s: %s %s, line %d column %d\n", o.Tool.Name, o.Method, o.Path, o.Line, o.Column)
		if o.Text != "" {
			fmt.Fprintf(&out, "  no tool: %s\n", o.Text)
			continue
		}
		fmt.Fprintf(&out, "  read-only %v, %q\n  %s\n", o.Tool.ReadOnly, o.Tool.Description, o.Config.URL)
		if len(o.Config.Query) > 0 {
			fmt.Fprintf(&out, "  query %v\n", o.Config.Query)
		}
		fmt.Fprintf(&out, "  %s\n", o.Tool.InputSchema)
	}
	return out.String()
}

func TestOperationsBecomeTools(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"petstore.yaml", "repositories.json", "payments.yaml"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			made, err := fromFile(t, file).Select(Selection{})
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", file+".txt")
			got := show(made)
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || got != string(want) {
				t.Errorf("the tools are\n%s\nwant\n%s, %v", got, want, err)
			}
		})
	}
}

func TestASelectionChoosesOperationsByNameAndPattern(t *testing.T) {
	t.Parallel()
	pets := fromFile(t, "petstore.yaml")
	for _, test := range []struct {
		operations []string
		want       string // names of tools, or the mistake
	}{
		{nil, "listPets createPet showPet deletePet uploadPhoto"}, // not the deprecated one
		{[]string{"showPet", "listPets"}, "listPets showPet"},
		{[]string{"*Pet"}, "createPet showPet deletePet"},
		{[]string{"*et*"}, "listPets createPet showPet deletePet"},
		{[]string{"GET /pets*"}, "listPets showPet"},
		{[]string{"* /pets/{petId}"}, "showPet deletePet"},
		{[]string{"!delete*", "!uploadPhoto"}, "listPets createPet showPet"},
		{[]string{"replacePet"}, "replacePet"},
		{[]string{"listpets"}, `operations: no operation is "listpets": give an operationId such as "listPets"`},
		{[]string{"GET /cats"}, `operations: no operation is "GET /cats"`},
	} {
		made, err := pets.Select(Selection{Operations: test.operations})
		var names []string
		for _, o := range made {
			names = append(names, o.Tool.Name)
		}
		got := strings.Join(names, " ")
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, test.want) || err == nil && got != test.want {
			t.Errorf("%q selects %s, want %s", test.operations, got, test.want)
		}
	}
}

// called is what a server has received.
type called struct {
	request *http.Request
	body    string
}

// call makes a call of an operation at a server, and returns the request.
func call(t *testing.T, d *Document, s Selection, input string) (called, error) {
	t.Helper()
	var got called
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = called{r, string(body)}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"ok":true}`)
	}))
	t.Cleanup(server.Close)
	s.BaseURL = server.URL + "/base"
	made, err := d.Select(s)
	if err != nil || len(made) != 1 || made[0].Text != "" {
		t.Fatalf("operations = %+v, %v, want one", made, err)
	}
	peers := httptool.Peers{
		Policy: outbound.Policy{Hosts: []string{"127.0.0.1"}}, Lookup: func(name string) (string, error) { return "secret of " + name, nil },
	}
	tool, err := httptool.New(made[0].Tool, made[0].Config, peers)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := agent.CompileSchema(tool.InputSchema)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Check(json.RawMessage(input)); err != nil {
		t.Errorf("%s does not fit the input schema: %v", input, err)
	}
	_, err = tool.Execute(t.Context(), &agent.Call{Tenant: "acme", UserID: "ann", Input: json.RawMessage(input)})
	return got, err
}

func TestAnOperationIsCalledAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file      string
		selection Selection
		input     string
		want      string // method, address, body
		headers   map[string]string
	}{
		"a query with lists": {
			file: "petstore.yaml", selection: Selection{Operations: []string{"listPets"}},
			input: `{"limit":5,"tags":["a b","c"],"ids":[1,2],"X-Trace":"t1"}`,
			want:  "GET /base/pets?ids=1,2&limit=5&tags=a+b&tags=c ", headers: map[string]string{"X-Trace": "t1", "Content-Type": ""},
		},
		"nothing that is optional": {
			file: "petstore.yaml", selection: Selection{Operations: []string{"listPets"}}, input: `{}`, want: "GET /base/pets ",
		},
		"a JSON body": {
			file: "petstore.yaml", selection: Selection{Operations: []string{"createPet"}, Auth: Auth{APIKey: "${PET_KEY}"}},
			input:   `{"body":{"name":"Rex","nickname":null,"kind":null,"friends":[{"name":"Tom"}]}}`,
			want:    `POST /base/pets {"friends":[{"name":"Tom"}],"kind":null,"name":"Rex","nickname":null}`,
			headers: map[string]string{"X-Api-Key": "secret of PET_KEY", "Content-Type": "application/json"},
		},
		"path parameters, and a bearer": {
			file: "repositories.json", selection: Selection{Operations: []string{"repos/compare-commits"}, Auth: Auth{Bearer: "${HUB_TOKEN}"}},
			input: `{"owner":"a/b","repo":"r","base":"v1","head":"v2"}`,
			want:  "GET /base/repos/a%2Fb/r/compare/v1...v2 ", headers: map[string]string{"Authorization": "Bearer secret of HUB_TOKEN"},
		},
		"fixed parameters of the runtime and of the author": {
			file: "repositories.json",
			selection: Selection{
				Operations: []string{"issues/list-for-repo"}, Headers: map[string]string{"X-User": "{{user.id}}"},
				Parameters: map[string]string{"owner": "{{tenant}}", "per_page": "100", "X-GitHub-Api-Version": "2022-11-28", "repo": "a/b?c"},
			},
			input: `{"page":2}`, want: "GET /base/repos/acme/a%2Fb%3Fc/issues?page=2&per_page=100 ",
			headers: map[string]string{"X-User": "ann", "X-Github-Api-Version": "2022-11-28"},
		},
		"objects in the query": {
			file: "payments.yaml", selection: Selection{Operations: []string{"GetCharges"}, Auth: Auth{Basic: &Basic{User: "${PAY_KEY}"}}},
			input:   `{"created":{"gte":1,"lt":2},"expand":["customer","data"]}`,
			want:    "GET /base/v1/charges?created%5Bgte%5D=1&created%5Blt%5D=2&expand%5B0%5D=customer&expand%5B1%5D=data ",
			headers: map[string]string{"Authorization": "Basic c2VjcmV0IG9mIFBBWV9LRVk6"},
		},
		"a form": {
			file: "payments.yaml", selection: Selection{Operations: []string{"PostCharges"}},
			input: `{"body":{"amount":12,"note":"a&b=c","metadata":{"k[0]":"v"},"expand":["x"],"codes":["a","b"],"items":[{"price":"p","quantity":2}]}}`,
			want: "POST /base/v1/charges amount=12&codes=a,b&expand%5B0%5D=x&items%5B0%5D%5Bprice%5D=p&items%5B0%5D%5Bquantity%5D=2" +
				"&metadata%5Bk%5B0%5D%5D=v&note=a%26b%3Dc",
			headers: map[string]string{"Content-Type": "application/x-www-form-urlencoded"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := call(t, fromFile(t, test.file), test.selection, test.input)
			if err != nil {
				t.Fatal(err)
			}
			if sent := got.request.Method + " " + got.request.RequestURI + " " + got.body; sent != test.want {
				t.Errorf("the server received\n%s, want\n%s", sent, test.want)
			}
			for name, want := range test.headers {
				if sent := got.request.Header.Get(name); sent != want {
					t.Errorf("the header %s is %q, want %q", name, sent, want)
				}
			}
		})
	}
}

func TestTheModelCannotReachHeadersOfTheConfiguration(t *testing.T) {
	t.Parallel()
	d := document(t, `{"openapi":"3.0.0","paths":{"/x":{"get":{"operationId":"x","parameters":[
		{"name":"authorization","in":"header","schema":{"type":"string"}},
		{"name":"X-user","in":"header","schema":{"type":"string"}},
		{"name":"idempotency-key","in":"header","schema":{"type":"string"}},
		{"name":"X-Note","in":"header","schema":{"type":"string"}}]}}}}`)
	s := Selection{Headers: map[string]string{"X-User": "{{user.id}}"}}
	got, err := call(t, d, s, `{"X-Note":"hi"}`)
	if err != nil || got.request.Header.Get("X-Note") != "hi" || got.request.Header.Get("X-User") != "ann" {
		t.Errorf("headers = %v, %v", got.request.Header, err)
	}
	s.BaseURL = "https://a.example"
	made, _ := d.Select(s)
	if want := `{"type":"object","properties":{"X-Note":{"type":"string"}},"additionalProperties":false}`; string(made[0].Tool.InputSchema) != want {
		t.Errorf("the input is %s, want %s", made[0].Tool.InputSchema, want)
	}
	if _, err := call(t, d, s, `{"X-Note":"hi\r\nX-User: eve"}`); err == nil || !strings.Contains(err.Error(), "control characters") {
		t.Errorf("error = %v, want none of the line breaks to pass", err)
	}
}

func TestMistakesInASelectionAreNamed(t *testing.T) {
	t.Parallel()
	pets, payments := fromFile(t, "petstore.yaml"), fromFile(t, "payments.yaml")
	for want, err := range map[string]error{
		"auth: give one of bearer, basic and apiKey":                      second(pets.Select(Selection{Auth: Auth{Bearer: "a", APIKey: "b"}})),
		"auth: apiKey: the document has 0 API keys under securitySchemes": second(payments.Select(Selection{Auth: Auth{APIKey: "b"}})),
		`parameters: no selected operation has a parameter "owner"`:       second(pets.Select(Selection{Parameters: map[string]string{"owner": "x"}})),
		`operations: no operation is "a*"`:                                second(pets.Select(Selection{Operations: []string{"a*"}})),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
}

func second(_ []Operation, err error) error { return err }

func TestServersOfADocument(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ servers, source, want string }{
		{`[{"url":"https://a.example/v1/"}]`, "", "https://a.example/v1/x"},
		{`[{"url":"https://{r}.example","variables":{"r":{"default":"eu"}}}]`, "", "https://eu.example/x"},
		{`[{"url":"/v2"}]`, "https://b.example/docs/openapi.json", "https://b.example/v2/x"},
		{`[]`, "https://b.example/docs/openapi.json", "https://b.example/x"},
		{`[{"url":"/v2"}]`, "", "servers has no absolute URL; give baseURL"},
		{`[{"url":"https://{r}.example"}]`, "", "has a variable without a default; give baseURL"},
	} {
		made, err := document(t, `{"openapi":"3.1.0","servers":`+test.servers+`,"paths":{"/x":{"get":{}}}}`).Select(Selection{Source: test.source})
		if err != nil || len(made) != 1 || !strings.Contains(made[0].Config.URL+made[0].Text, test.want) {
			t.Errorf("servers %s: %+v, %v, want %s", test.servers, made, err, test.want)
		}
	}
}

func TestWhatIsNoDocumentIsRefused(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)
	var bomb strings.Builder // ten levels of ten aliases of the level below
	bomb.WriteString("openapi: 3.0.0\npaths: {/x: {get: {}}}\nx0: &x0 [a, a]\n")
	for i := range 10 {
		fmt.Fprintf(&bomb, "x%d: &x%d [%s*x%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*x%d, ", i), 9), i)
	}
	for text, want := range map[string]string{
		`{"swagger":"2.0"}`:                 "convert it to OpenAPI 3",
		`{"openapi":"3.2.0","paths":{}}`:    `it follows OpenAPI "3.2.0"`,
		`{"info":{}}`:                       "it is no OpenAPI document",
		`{"openapi":"3.1.0"}`:               "it has no paths",
		`{"openapi":"3.1.0",`:               "it is not JSON",
		`{"openapi":"3.1.0","paths":{}} {}`: "there is more text",
		deep:                                "nested deeper than 100 levels",
		`{"a":[` + strings.Repeat("0,", maxNodes) + "0]}":   "more than 1000000 values",
		`{"a":"` + strings.Repeat("x", MaxJSONBytes) + `"}`: "at most 16777216 are allowed",
		"a: &a {b: *a}": "the alias *a refers to itself",
		"a: *b":         "there is no anchor &b",
		bomb.String():   "",
	} {
		_, err := fromText(t, text)
		m, isMistake := errors.AsType[Mistake](err)
		if want == "" && err != nil || want != "" && (!isMistake || m.Line < 1 || !strings.Contains(m.Text, want)) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

func TestHostileSchemasAreBounded(t *testing.T) {
	t.Parallel()
	wide := make([]string, 3000) // schemas that all refer to each other
	for i := range wide {
		wide[i] = fmt.Sprintf(`"s%d":{"type":"object","description":%q,"properties":{"a":{"$ref":"#/components/schemas/s%d"},"b":{"$ref":"#/components/schemas/s%d"}}}`,
			i, strings.Repeat("x", 300), (2*i+1)%3000, (2*i+2)%3000)
	}
	var bomb strings.Builder
	bomb.WriteString("openapi: 3.0.0\nservers: [{url: 'https://a.example'}]\nx0: &x0 {type: string}\n")
	for i := range 40 {
		fmt.Fprintf(&bomb, "x%d: &x%d {type: object, properties: {a: *x%d, b: *x%d, c: *x%d}}\n", i+1, i+1, i, i, i)
	}
	bomb.WriteString("paths: {/x: {post: {requestBody: {content: {application/json: {schema: *x40}}}}}}\n")
	names := strings.Repeat(`"`+strings.Repeat("n", 1000)+`",`, 100)
	for name, text := range map[string]string{
		"references": `{"openapi":"3.1.0","servers":[{"url":"https://a.example"}],"paths":{"/x":{"post":{"requestBody":{"content":{"application/json":
			{"schema":{"$ref":"#/components/schemas/s0"}}}}}}},"components":{"schemas":{` + strings.Join(wide, ",") + `}}}`,
		"aliases": bomb.String(),
		"an enumeration": `{"openapi":"3.1.0","servers":[{"url":"https://a.example"}],"paths":{"/x":{"post":{"requestBody":{"content":{"application/json":
			{"schema":{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"enum":[` + names + `"n"]}}}}}}}}}}}}`,
	} {
		made, err := document(t, text).Select(Selection{})
		if err != nil || len(made) != 1 || made[0].Text != "" {
			t.Fatalf("%s: %.300v, %v", name, made, err)
		}
		if n := len(made[0].Tool.InputSchema); n > maxSchemaBytes {
			t.Errorf("%s: the input schema has %d bytes, want at most %d", name, n, maxSchemaBytes)
		}
		schema, err := agent.CompileSchema(made[0].Tool.InputSchema)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Check([]byte(`{"body":{"a":{"b":{}}}}`)); err != nil {
			t.Errorf("%s: below the depth any value fits, but %v", name, err)
		}
	}
}

func TestOfManyOperationsOnlyTheSelectedOnesBecomeTools(t *testing.T) {
	t.Parallel()
	paths := make([]string, 5000)
	for i := range paths {
		paths[i] = fmt.Sprintf(`"/p%d/{id}":{"get":{"operationId":"get%d","parameters":[{"name":"id","in":"path","schema":{"type":"string"}}],"description":%q}}`,
			i, i, strings.Repeat("x", 2000))
	}
	d := document(t, `{"openapi":"3.1.0","servers":[{"url":"https://a.example"}],"paths":{`+strings.Join(paths, ",")+"}}") // 10 MB
	made, err := d.Select(Selection{Operations: []string{"get4999", "get17"}})
	if err != nil || len(made) != 2 || made[1].Tool.Name != "get4999" || len(made[1].Tool.Description) > maxDescription {
		t.Errorf("operations = %.100v, %v, want two", made, err)
	}
	if _, err := d.Select(Selection{Operations: make([]string, maxPatterns+1)}); err == nil || !strings.Contains(err.Error(), "at most 500") {
		t.Errorf("error = %v, want one about too many patterns", err)
	}
	made, err = d.Select(Selection{})
	if len(made) != MaxSelected || err == nil || err.Error() != "operations: there are more than 200; name those that the agent needs" {
		t.Errorf("%d operations, %v", len(made), err)
	}
}

func TestWildcardsStandForAnyText(t *testing.T) {
	t.Parallel()
	for _, match := range []string{"a a", "* ", "* abc", "a* abc", "*c abc", "a*c abc", "*b* abc", "a**c ac", "a*b*c axbybzc"} {
		pattern, text, _ := strings.Cut(match, " ")
		if !wild(pattern, text) {
			t.Errorf("%q does not match %q", pattern, text)
		}
	}
	for _, miss := range []string{"a b", "a ab", "a*c abcd", "*b abc", "a*a a", "*x* abc"} {
		pattern, text, _ := strings.Cut(miss, " ")
		if wild(pattern, text) {
			t.Errorf("%q matches %q", pattern, text)
		}
	}
}

func FuzzADocument(f *testing.F) {
	for _, name := range []string{"petstore.yaml", "repositories.json", "payments.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		var d *Document
		var err error
		if strings.HasPrefix(text, "{") {
			d, err = FromJSON([]byte(text))
		} else {
			file, wrong := parser.ParseBytes([]byte(text), 0)
			if wrong != nil || len(file.Docs) == 0 || file.Docs[0].Body == nil {
				return
			}
			anchors := anchorsOf{}
			ast.Walk(anchors, file.Docs[0].Body)
			d, err = FromYAML(file.Docs[0].Body, anchors)
		}
		if err != nil {
			return
		}
		made, _ := d.Select(Selection{})
		for _, o := range made {
			if o.Text != "" {
				continue
			}
			if _, err := agent.CompileSchema(o.Tool.InputSchema); err != nil || len(o.Tool.InputSchema) > maxSchemaBytes {
				t.Errorf("the input %s: %v", o.Tool.InputSchema, err)
			}
			if len(o.Tool.Name) > 64 {
				t.Errorf("the name %q is too long", o.Tool.Name)
			}
		}
	})
}
