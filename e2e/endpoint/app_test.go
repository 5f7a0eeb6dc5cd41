package endpoint_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// TestAnAppRefusesWhatItMust sends requests to the apps themselves.
func TestAnAppRefusesWhatItMust(t *testing.T) {
	t.Parallel()
	for name, app := range endpointApps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := startOutside(t)
			url := "http://" + app(t, o, oldSecret+","+newSecret).Address + endpointPath
			checkSignatures(t, url)
			checkRequests(t, url)
			checkDescription(t, url)
			secretless := "http://" + app(t, o, "").Address + endpointPath
			for _, body := range []string{"", toolCall("puppet", "tool", "act", `[]`)} {
				wantRefusal(t, secretless, "a signed request to an app without a secret", valid(body), http.StatusUnauthorized, "SECRET_MISSING")
			}
		})
	}
}

// checkDescription checks the description of an app, and its ETag.
func checkDescription(t *testing.T, url string) {
	t.Helper()
	got := valid("").send(t, url)
	var described struct {
		Endpoint   int
		SDK, Build string
		Agents     []struct {
			Name      string
			Callbacks []string
			Methods   []string
			Tools     []json.RawMessage // some are names
		}
		Sources map[string]string
	}
	if err := json.Unmarshal([]byte(got.text), &described); err != nil {
		t.Fatalf("the description is %.500s: %v", got.text, err)
	}
	if described.Endpoint != 1 || described.Build != "edition-1" || !strings.Contains(described.SDK, "/") {
		t.Errorf("the description has endpoint %d, build %q and sdk %q", described.Endpoint, described.Build, described.SDK)
	}
	if !strings.HasPrefix(got.header.Get("Content-Type"), "application/json") {
		t.Errorf("the description has the content type %q", got.header.Get("Content-Type"))
	}
	found := map[string]string{}
	for _, a := range described.Agents {
		found[a.Name] = strings.Join(a.Callbacks, " ")
		for _, text := range a.Tools {
			var tool struct {
				Name      string
				Callbacks []string
			}
			_ = json.Unmarshal(text, &tool) // a name has no callbacks
			found[a.Name+"/"+tool.Name] = strings.Join(tool.Callbacks, " ")
		}
	}
	for name, want := range map[string]string{
		"prompter": "prompt", "stopper": "stopWhen", "guarded": "guard.onReply", "guarded-output": "guard.onOutput", "compacting": "compact", "advised": "stepContext",
		"puppet/act": "execute", "puppet/act_ruled": "execute approval", "puppet/act_asked": "execute", "puppet/ask": "",
	} {
		if got, ok := found[name]; !ok || got != want {
			t.Errorf("%s has the callbacks %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"puppet", "puppet/act"} {
		if !strings.Contains(described.Sources[name], "app.") {
			t.Errorf("the source of %s is %q, want its place in the app", name, described.Sources[name])
		}
	}
	tag := got.header.Get("ETag")
	if tag == "" {
		t.Error("the description has no ETag")
	}
	e := valid("")
	e.header = http.Header{"If-None-Match": {tag}}
	if again := e.send(t, url); again.status != http.StatusNotModified || again.text != "" {
		t.Errorf("the same description again: got %d with %d bytes, want 304", again.status, len(again.text))
	}
}

// TestAnAppIsDeployedAgain replaces the app by its second edition while a call is on its way.
func TestAnAppIsDeployedAgain(t *testing.T) {
	t.Parallel()
	for name, app := range endpointApps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startDirect(t, app)
			first := c.begin(
				t,
				scenario{
					name: "first", agent: "puppet",
					model: []turn{calls(using("act_safe", wait("deploy"), pay("first"))), calls(act(giveContext())), say("ok")},
				},
			)
			arrive("deploy")(first)
			c.app.Kill()
			c.Open(first.session + "/deploy")
			c.app.Setenv("EDITION=2")
			c.app.Start()
			first.wait()
			c.served.WaitAgent(t, "newcomer")
			want := "act_safe: \"done\"\nact: …\nsays \"ok\"\ncompleted \"ok\"\neffect first"
			if got := first.transcript(); !fits(got, want) {
				t.Errorf("the run that began before: got\n%s\nwant\n%s", indent(got), indent(want))
			}
			n := 0
			harness.WaitFor(t, patience, "the second edition of the agent", func() (bool, string) {
				n++
				p := c.begin(t, scenario{name: fmt.Sprint("second ", n), agent: "puppet", model: []turn{say("ok")}})
				p.wait()
				prompt := c.model.Asked(p.session)[0].System
				return prompt == "You are the second puppet.", prompt
			})
		})
	}
}

// TestASecretIsRotatedWithoutAPause gives the app and the executor a new secret, one after the other, as docs/endpoint.md says.
func TestASecretIsRotatedWithoutAPause(t *testing.T) {
	t.Parallel()
	for name, app := range endpointApps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &crashed{world: newWorld(t)}
			c.app = app(t, c.outside, oldSecret)
			c.serveEndpoint(t, "http://"+c.app.Address+endpointPath, "HOLDFAST_EXECUTOR_ENDPOINT_SECRETS="+newSecret+","+oldSecret)
			c.served.WaitAgent(t, "methodical")
			for i, secrets := range []string{oldSecret, newSecret + "," + oldSecret, newSecret} {
				if i > 0 {
					c.app.Kill()
					c.app.Setenv("SECRETS=" + secrets)
					c.app.Start()
				}
				p := c.begin(t, scenario{name: fmt.Sprint("rotation ", i), agent: "puppet", model: []turn{calls(act(give(i))), say("ok")}})
				p.wait()
				if got, want := p.transcript(), fmt.Sprintf("act: %d\nsays \"ok\"\ncompleted \"ok\"", i); got != want {
					t.Errorf("the secrets of the app are number %d: got\n%s\nwant\n%s", i, indent(got), indent(want))
				}
			}
		})
	}
}

// TestAnExecutorWithAWrongSecretServesNothing and says why.
func TestAnExecutorWithAWrongSecretServesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := python(t, w.outside, oldSecret)
	w.serveEndpoint(t, "http://"+p.Address+endpointPath)
	harness.WaitFor(t, patience, "the problem of the endpoint", func() (bool, string) {
		agents, err := w.client.Agents(t.Context())
		if err != nil {
			return false, err.Error()
		}
		if len(agents.GetAgents()) > 0 {
			t.Errorf("agents are served: %v", agents.GetAgents())
		}
		return strings.Contains(fmt.Sprint(agents.GetProblems()), "SIGNATURE_INVALID"), fmt.Sprint(agents)
	})
}
