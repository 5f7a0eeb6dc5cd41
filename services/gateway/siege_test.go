//go:build !race

package gateway_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// secret is in every message, call and state of the sessions under attack, and in no request.
const secret = "secret-7431"

// victims are the sessions under attack, all of the user alice of the tenant acme.
var victims = []string{"ended", "waiting", "live", "demo:room"}

// fewestAttempts is how many requests a run of the test makes at least.
const fewestAttempts = 30_000

// intruder is a caller without some right to the victims.
type intruder struct {
	name       string
	credential string // of the header Authorization; empty for none
	reason     string // of every refusal; empty if a request may succeed without anything of the victims
	reads      bool   // the caller may read the victims, and nothing more
}

// siege is a gateway with the victims and everything known about them.
type siege struct {
	*fixture
	t           *testing.T
	tenant      string   // of the victims
	secrets     []string // texts that only answers to callers with rights may have
	runs        map[string]string
	checkpoints map[string]string
	sent        int
}

// leak is an answer with something of a victim.
type leak struct{ who, what, id, found string }

// The detector would slow the test down six times and look at the same paths as the other tests.
func TestNobodyReachesASessionWithoutItsRights(t *testing.T) {
	t.Parallel()
	s, keys := besiege(t)
	token := func(scopes string, ttl int, subject string) string {
		return s.mint(t, keys["server"], subject, scopes, ttl)
	}
	expiring := token(`"read","chat","approve"`, 1, "alice")
	intruders := []intruder{
		{name: "nobody", reason: "API_KEY_MISSING"},
		{name: "a caller with an unknown key", credential: "Bearer hf_unknown", reason: "API_KEY_WRONG"},
		{name: "a caller with an expired key", credential: keys["expired"], reason: "API_KEY_EXPIRED"},
		{name: "a key of another tenant", credential: keys["foreign"]},
		{name: "an admin of another tenant", credential: keys["foreign-admin"]},
		{name: "another user's key", credential: keys["mallory"]},
		{name: "another user's token", credential: token(`"read","chat","approve"`, 600, "mallory")},
		{name: "an approver of the tenant", credential: keys["approver"]},
		{name: "a reader of the owner", credential: keys["reader"], reads: true},
	}
	var leaks []leak
	before := s.stored(t)
	for _, who := range intruders {
		leaks = append(leaks, s.attack(who)...)
		if after := s.stored(t); after != before {
			t.Fatalf("%s has changed a session:\n%s\nwas\n%s", who.name, after, before)
		}
	}
	waitFor(t, "the token expires", func() bool {
		return s.request(t, http.MethodGet, "/status?sessionId=ended", "", "Authorization", expiring).StatusCode == http.StatusUnauthorized
	})
	leaks = append(leaks, s.attack(intruder{name: "a caller with an expired token", credential: expiring, reason: "TOKEN_EXPIRED"})...)
	if after := s.stored(t); after != before {
		t.Fatalf("an expired token has changed a session:\n%s\nwas\n%s", after, before)
	}
	for _, l := range leaks {
		t.Errorf("%s: %s with id %q: %s", l.who, l.what, l.id, l.found)
	}
	t.Logf("%d requests, %d let in", s.sent, len(leaks))
	if s.sent < fewestAttempts {
		t.Errorf("the test has made %d requests, want at least %d", s.sent, fewestAttempts)
	}
	s.wantControl(t, keys)
}

// wantControl checks that the same requests find the secret with the right to it, so that the test can
// see a leak.
func (s *siege) wantControl(t *testing.T, keys map[string]string) {
	t.Helper()
	found := map[string]bool{}
	for _, l := range s.attack(intruder{name: "a server of the tenant", credential: keys["server"]}) {
		found[l.what] = true
	}
	if copies := s.copies(t); len(copies) == 0 {
		t.Error("a server of the tenant has made no copy of a victim, so the test would see none")
	}
	for _, l := range s.attackWith(intruder{name: "an admin of the tenant", credential: keys["admin"]}, func(a attempt) bool { return strings.Contains(a.what, "udit") }) {
		found[l.what] = true
	}
	t.Logf("positive control: %d kinds of requests show the secret to a server or an admin of the tenant", len(found))
	for _, what := range []string{
		"GET /audit", "ListAuditEvents over json", "ListAuditEvents over grpc",
		"GET /messages", "GET /snapshot", "GET /history", "GET /sse", "GET /ws", "GET /sessions/{id}", "GET /chat/{id}/stream", "GET /calls",
		"GET /agents/{agent}/{name}", "GET /agents/{agent}/{name}/get-messages",
		"Get over connect", "GetSession over grpc", "ListMessages over grpc-web", "Stream over json", "Stream over grpc", "GetCheckpoint over grpc",
	} {
		if !found[what] {
			t.Errorf("%s shows nothing to a caller with all rights, so the test would see no leak", what)
		}
	}
}

// besiege opens a gateway with the victims. It returns the credentials by name.
func besiege(t *testing.T) (s *siege, credentials map[string]string) {
	t.Helper()
	credentials = map[string]string{}
	var entries strings.Builder
	for name, rest := range map[string]string{
		"server":        "tenant: acme, scopes: [operate]",
		"author":        "tenant: acme, scopes: [operate]",
		"admin":         "tenant: acme, scopes: [admin]",
		"expired":       "tenant: acme, scopes: [operate], expires: 2020-01-02T03:04:05Z",
		"foreign":       "tenant: other, scopes: [operate]",
		"foreign-admin": "tenant: other, scopes: [admin]",
		"mallory":       "tenant: acme, subject: mallory, scopes: [read, chat, approve]",
		"writer":        "tenant: acme, subject: mallory, scopes: [chat]",
		"watcher":       "tenant: acme, subject: mallory, scopes: [read]",
		"approver":      "tenant: acme, subject: trent, scopes: [approve]",
		"alice":         "tenant: acme, subject: alice, scopes: [read, chat, approve]",
		"zoe":           "tenant: acme, subject: zoe, scopes: [read, chat, approve]",
		"reader":        "tenant: acme, subject: alice, scopes: [read]",
	} {
		key, sum := gateway.NewAPIKey()
		credentials[name] = "Bearer " + key
		fmt.Fprintf(&entries, "- {name: %s, sha256: %s, %s}\n", name, sum, rest)
	}
	file := keysFile(t, entries.String())
	h := open(t, func(c *gateway.Config) {
		c.APIKeys, c.InsecureNoAuth, c.TokenSecrets = file, false, []string{strings.Repeat("s", 32)}
		c.StatePatience = 0      // an answer to a call that a live run may still open is refused at once
		c.AuthFailures = 1 << 20 // throttled callers would not reach the checks
	})
	return surround(t, h, "acme"), credentials
}

// surround plays the victims.
func surround(t *testing.T, h *fixture, tenant string) *siege {
	t.Helper()
	s := &siege{fixture: h, t: t, tenant: tenant, secrets: []string{secret}, runs: map[string]string{}, checkpoints: map[string]string{}}
	for _, id := range victims {
		s.playVictim(id)
	}
	return s
}

// playVictim plays a session of alice, in the state of its name.
func (s *siege) playVictim(id string) {
	s.t.Helper()
	if _, err := s.State.StartRun(s.t.Context(), &statev1.StartRunRequest{
		Tenant: s.tenant, SessionId: id, AgentType: "demo", UserId: "alice", Caller: &statev1.Caller{Actor: "key:server"}, CustomState: `{"note":"` + secret + `"}`,
		Metadata: map[string]string{"note": secret}, Messages: []*eventv1.Message{{
			Id: "m-" + id, Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: secret}}}},
		}},
	}); err != nil {
		s.t.Fatal(err)
	}
	run := s.AwaitRun(s.t, s.tenant, id, nil)
	input := `{"note":"` + secret + `"}`
	switch id {
	case "live":
		run.Show(1, Started(), Text(secret))
	case "waiting":
		run.Show(1, Started(), Text(secret), ClientCall("c1", input), StepCommitted(), Suspended())
		run.Suspend([]*statev1.Call{{
			ToolCallId: "c1", SessionId: id, RunId: run.GetRunId(), Step: 1, ToolName: "add", Input: input, Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL,
		}}, AssistantMessage(1, secret, "c1"))
	default:
		run.Show(1, Started(), Text(secret))
		run.Complete(AssistantMessage(1, secret))
	}
	s.runs[id] = run.GetRunId()
	s.checkpoints[id] = s.State.Get(s.tenant, id).GetSession().GetCheckpointId()
	s.secrets = append(s.secrets, `"`+run.GetRunId()+`"`)
}

// stored returns everything that the state service stores of the victims.
func (s *siege) stored(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, id := range victims {
		got := s.State.Get(s.tenant, id)
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s: version %d, run %s, %d messages, %x\n", id, got.GetSession().GetVersion(), got.GetCurrentRun().GetRunId(), got.GetSession().GetMessageCount(), text)
	}
	for _, id := range s.copies(t) {
		fmt.Fprintf(&all, "%s: a copy\n", id)
	}
	return all.String()
}

// copies returns the other sessions that have something of a victim.
func (s *siege) copies(t *testing.T) (ids []string) {
	t.Helper()
	for _, tenant := range []string{s.tenant, "other"} {
		for _, id := range s.State.Sessions(t, tenant) {
			if tenant == s.tenant && slices.Contains(victims, id) {
				continue
			}
			if strings.Contains(fmt.Sprint(s.State.Get(tenant, id), s.State.Messages(t, tenant, id)), secret) {
				ids = append(ids, tenant+"/"+id)
			}
		}
	}
	return ids
}

// mint returns a token for the subject.
func (s *siege) mint(t *testing.T, credential, subject, scopes string, seconds int) string {
	t.Helper()
	body := fmt.Sprintf(`{"subject":%q,"scopes":[%s],"ttlSeconds":%d}`, subject, scopes, seconds)
	var minted struct{ Token string }
	decodeBody(t, s.request(t, http.MethodPost, "/tokens", body, "Authorization", credential), &minted)
	return "Bearer " + minted.Token
}

// attack sends every request as the intruder, and returns the answers that have something of a victim or
// are not the refusal that the intruder must get.
func (s *siege) attack(who intruder) (leaks []leak) {
	return s.attackWith(who, func(attempt) bool { return true })
}

// attackWith is attack with the chosen requests.
func (s *siege) attackWith(who intruder, chosen func(attempt) bool) (leaks []leak) {
	for _, a := range s.attempts(who.credential) {
		if !chosen(a) {
			continue
		}
		s.sent++
		answer := a.send()
		if found := s.judge(who, a, answer); found != "" {
			leaks = append(leaks, leak{who.name, a.what, a.id, found})
		}
	}
	return leaks
}

// judge returns what the answer reveals; empty for nothing.
func (s *siege) judge(who intruder, a attempt, answer outcome) string {
	if who.reads {
		if a.id == "" {
			return "" // the path may be that of no route
		}
		if a.needs != "" && a.needs != auth.Read && !strings.Contains(answer.text, "SCOPE_MISSING") {
			return fmt.Sprintf("got %d %.200s, want SCOPE_MISSING", answer.status, answer.text)
		}
		return ""
	}
	for _, text := range s.secrets {
		if strings.Contains(answer.text, text) && !strings.Contains(a.request, strings.Trim(text, `"`)) {
			return fmt.Sprintf("the answer has %q: %.300s", text, answer.text)
		}
	}
	if a.id == "" && (answer.status == http.StatusTemporaryRedirect || strings.Contains(answer.text, "ROUTE_NOT_FOUND")) {
		return "" // without an id, the path is that of no route
	}
	if who.reason != "" && !a.public && !strings.Contains(answer.text, who.reason) {
		return fmt.Sprintf("got %d %.200s, want %s", answer.status, answer.text, who.reason)
	}
	return ""
}

// firstPatience is how long an attempt waits for the first message of a stream, or for its refusal. streamPatience is
// how long it reads a stream that does not end.
const (
	firstPatience  = 10 * time.Second
	streamPatience = 20 * time.Millisecond
)
