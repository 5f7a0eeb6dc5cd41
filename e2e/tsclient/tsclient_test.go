// Package tsclient_test runs the tests of the TypeScript package, and tests its client as its users get it: packed,
// installed by npm, and compiled against its types.
package tsclient_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m, 3) }

const source = "../../clients/typescript"

const agents = `
models:
  scripted:
    script: |
      models:
        talker:
          rules:
            - when: {lastUser: '^tell me a story$'}
              reply: [{text: 'STORY', chunk: 1 word, delay: 10ms}]
            - reply: 'You said: {{.LastUser}}'
        clerk:
          rules:
            - when: {toolFailed: calculate}
              reply: 'Denied: {{.LastResult}}'
            - when: {toolResult: calculate}
              reply: 'It is {{field .LastResult "value"}}.'
            - when: {toolFailed: ask}
              reply: 'No answer: {{.LastResult}}'
            - when: {toolResult: ask}
              reply: 'You chose {{field .LastResult "choice"}}.'
            - when: {lastUser: '^sum$'}
              reply: [{call: {name: calculate, arguments: {expression: 6 * 7}}}]
            - reply: [{call: {name: ask}}]
agents:
  - {name: talker, description: Talks., model: scripted/talker}
  - name: clerk
    model: scripted/clerk
    tools:
      - {use: calculate, approval: always}
      - {name: ask, description: Asks., client: true}
`

var story = strings.TrimSpace(strings.Repeat("once upon a time ", 40))

func agentsFile() string { return strings.ReplaceAll(agents, "STORY", story) }

// command runs a program and returns its output.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	var out, trouble bytes.Buffer
	c.Stdout, c.Stderr = &out, &trouble
	if err := c.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out.String(), trouble.String())
	}
	return out.String()
}

// install packs the client, installs it in a folder, and compiles drive.ts and outages.ts against it.
func install(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	packed := strings.Fields(command(t, source, "npm", "pack", "--silent", "--pack-destination", folder))
	write(t, filepath.Join(folder, "package.json"), `{"name": "app", "private": true, "type": "module"}`)
	command(t, folder, "npm", "install", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error", filepath.Join(folder, packed[len(packed)-1]))
	for _, name := range []string{"drive.ts", "outages.ts"} {
		program, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, name), string(program))
	}
	compiler, err := filepath.Abs(source + "/node_modules/typescript/bin/tsc")
	if err != nil {
		t.Fatal(err)
	}
	types := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(compiler))), "@types")
	command(t, folder, "node", compiler, "--strict", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess", "--target", "es2022",
		"--module", "nodenext", "--lib", "es2023,dom,dom.iterable", "--typeRoots", types, "--types", "node", "drive.ts", "outages.ts")
	return folder
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func drive(t *testing.T, folder string, args ...string) string {
	t.Helper()
	return strings.TrimSpace(command(t, folder, "node", append([]string{"drive.js"}, args...)...))
}

func TestTheInstalledClientDrivesAGateway(t *testing.T) {
	t.Parallel()
	folder := install(t)
	d := harness.StartDev(t, agentsFile())

	t.Run("asks, lists, opens, branches and deletes", func(t *testing.T) {
		t.Parallel()
		want := `{"text":"You said: hello","status":"completed","listed":["more-0","more-1","more-2","talk"],"tagged":["talk"],"title":"A talk",` +
			`"messages":["user","assistant"],"branch":2,"deleted":1,"usage":true}`
		if got := drive(t, folder, "conversation", d.URL); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})

	t.Run("reads a stream through broken connections", func(t *testing.T) {
		t.Parallel()
		proxy := harness.StartProxy(t, d.Address)
		proxy.CutOnceBehind("upon a")
		want := `{"text":"` + story + `","caughtUp":1,"rising":true,"status":"completed"}`
		if got := drive(t, folder, "stream", proxy.URL); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if proxy.Cuts() == 0 {
			t.Error("no connection was cut")
		}
	})

	t.Run("writes a state and a status", func(t *testing.T) {
		t.Parallel()
		want := `{"state":{"plan":null,"seen":[1,2]},"warnings":[],"stale":{"status":409,"code":"VERSION_STALE","said":true},"status":"paused",` +
			`"refused":["completed",true],"set":true}`
		if got := drive(t, folder, "writes", d.URL); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})

	t.Run("answers calls", func(t *testing.T) {
		t.Parallel()
		want := `{"waiting":["answered","approved","denied","failed"],"approvals":["approved","denied"],"approved":["accepted","It is 42."],` +
			`"denied":["accepted","Denied: {\"error\":\"a human has refused this call, so it was not made: too much\"}"],"answered":["accepted","You chose red."],` +
			`"failed":["accepted","No answer: {\"error\":\"nobody there\"}"],"again":"already_completed",` +
			`"unknown":{"status":404,"code":"UNKNOWN_TOOL_CALL","kind":"tool_call","said":true},"left":0}`
		if got := drive(t, folder, "answers", d.URL); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})

	t.Run("lists messages, runs and usage", func(t *testing.T) {
		t.Parallel()
		want := `{"messages":["user: number 0","assistant: You said: number 0","user: number 1","assistant: You said: number 1","user: number 2",` +
			`"assistant: You said: number 2"],"turns":[3,2,1],"usage":[3,1,1,true],"missing":{"status":404,"code":"SESSION_NOT_FOUND","kind":"session","said":true}}`
		if got := drive(t, folder, "lists", d.URL); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})

	t.Run("stores and reads files", func(t *testing.T) {
		t.Parallel()
		want := `{"raw":[20000,"application/octet-stream",true],"text":[5,"text/plain","hello"],"named":[3,"text/csv"],"answer":"You said: look",` +
			`"missing":{"status":404,"code":"FILE_NOT_FOUND","kind":"file","said":true},"image":{"status":400,"code":"FILE_INVALID","said":true}}`
		if got := drive(t, folder, "files", d.URL); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})

	t.Run("gives typed errors", func(t *testing.T) {
		t.Parallel()
		want := `{"missing":{"status":404,"code":"SESSION_NOT_FOUND","kind":"session","said":true},` +
			`"busy":{"status":409,"code":"SESSION_BUSY","currentStatus":"active","said":true},` +
			`"cursor":{"status":404,"code":"SESSION_NOT_FOUND","kind":"session","said":true}}`
		if got := drive(t, folder, "errors", d.URL); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})

	t.Run("survives outages, and starts one run", func(t *testing.T) {
		t.Parallel()
		checkOutages(t, folder)
	})

	t.Run("sends its key", func(t *testing.T) {
		t.Parallel()
		checkKeys(t, folder)
	})
}

func checkOutages(t *testing.T, folder string) {
	t.Helper()
	want := `{"quiet":["chunk caught-up chunk end",["0","7","7","7","7"]],"silent":["chunk end",["0","7"]],"slowConsumer":["chunk end",["0"]],` +
		`"dead":["caught-up Error: cut",true],"heldBack":["Error: The stream has not begun.",2],"longPoll":["completed",3],"pinned":[null,"r1"],"keys":[36,36,3],"interrupted":"RUN_INTERRUPTED"}`
	if got := strings.TrimSpace(command(t, folder, "node", "outages.js")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func checkKeys(t *testing.T, folder string) {
	t.Helper()
	s := harness.Start(t, harness.Options{Agents: agentsFile()})
	want := `{"list":{"status":401,"code":"API_KEY_WRONG","said":true},"stream":{"status":401,"code":"API_KEY_WRONG","said":true}}`
	if got := drive(t, folder, "key", s.URL, "wrong"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	want = `{"list":{"result":[]},"stream":{"status":404,"code":"SESSION_NOT_FOUND","kind":"session","said":true}}`
	if got := drive(t, folder, "key", s.URL, harness.Key); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestThePackagePassesItsOwnTests(t *testing.T) {
	tests := exec.CommandContext(t.Context(), "npm", "test", "--silent")
	tests.Dir = source
	tests.Env = append(os.Environ(), "HOLDFAST_BIN="+harness.Binary(t, "holdfast"))
	if out, err := tests.CombinedOutput(); err != nil {
		t.Errorf("npm test: %v\n%s", err, out)
	}
}

func TestTheGeneratedTypesAreCurrent(t *testing.T) {
	t.Parallel()
	written := filepath.Join(t.TempDir(), "schema.ts")
	command(t, source, "node", "node_modules/openapi-typescript/bin/cli.js", "../../services/gateway/internal/openapi/openapi.json", "-o", written)
	got, err := os.ReadFile(filepath.Join(source, "src", "schema.ts"))
	if err != nil {
		t.Fatal(err)
	}
	if want, err := os.ReadFile(written); err != nil || !bytes.Equal(got, want) {
		t.Errorf("src/schema.ts is not current (%v): run make generate", err)
	}
}
