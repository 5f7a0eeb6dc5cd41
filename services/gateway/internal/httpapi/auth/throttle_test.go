package auth

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// events keeps what it is told.
type events struct{ all []Event }

func (e *events) Record(_ context.Context, one Event) { e.all = append(e.all, one) }

// from returns a request of a peer with the credential.
func from(peer, sent string) *http.Request {
	r := requestWith(sent)
	r.RemoteAddr = peer
	return r
}

func TestAnAddressWithTooManyWrongCredentialsIsThrottled(t *testing.T) {
	t.Parallel()
	m := newMinting(t, "scopes: [operate]", secretA)
	var log bytes.Buffer
	audit := &events{}
	m.Log, m.Audit = slog.New(slog.NewTextHandler(&log, nil)), audit
	var err error
	if m.Throttle, err = NewThrottle(3, time.Minute, m.at.Now); err != nil {
		t.Fatal(err)
	}
	check := func(when string, r *http.Request, want string) {
		t.Helper()
		_, err := m.Admit(r, Read)
		if got := fault.ReasonOf(err); got != want {
			t.Errorf("%s: got %v, want %q", when, err, want)
		}
	}
	missing := from("192.0.2.1:1", "")
	missing.Header.Del("Authorization")
	for n := range 10 {
		check(fmt.Sprint("no credential ", n), missing, "API_KEY_MISSING")
	}
	for n := range 3 {
		check(fmt.Sprint("failure ", n), from(fmt.Sprintf("192.0.2.1:%d", 4000+n), "hf_wrong"), "API_KEY_WRONG")
	}
	for range 50 {
		check("too many", from("192.0.2.1:5000", "hf_wrong"), "AUTH_THROTTLED")
	}
	check("a good key of the same address", from("192.0.2.1:5001", m.key), "")
	check("another address", from("192.0.2.2:5000", "hf_wrong"), "API_KEY_WRONG")
	_, refusal := m.Admit(from("192.0.2.1:5000", "hf_wrong"), Read)
	if f, _ := fault.From(refusal); f.Kind != fault.Exhausted || f.Meta["retryAfterMs"] != "60000" {
		t.Errorf("got %v with %v, want the end of the window", refusal, f.Meta)
	}
	if n := strings.Count(log.String(), "192.0.2.1"); n != 1 {
		t.Errorf("the address is logged %d times, want once:\n%s", n, &log)
	}
	if n := len(audit.all); n != 10+3+1 {
		t.Errorf("%d events were recorded, want those that were not throttled", n)
	}
	m.at.pass(time.Minute)
	check("the next window", from("192.0.2.1:5000", "hf_wrong"), "API_KEY_WRONG")
}

func TestAddressesOfOneNetworkCountTogether(t *testing.T) {
	t.Parallel()
	at := newClock()
	throttle, err := NewThrottle(1, time.Minute, at.Now)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	for _, tc := range []struct {
		peer      string
		throttled bool
	}{
		{"[2001:db8::1]:1", false}, {"[2001:db8::2]:1", true}, {"[2001:db8:0:1::1]:1", false},
		{"192.0.2.1:1", false}, {"[::ffff:192.0.2.1]:1", true}, {"pipe", false},
	} {
		if err := throttle.fail(from(tc.peer, ""), log); (err != nil) != tc.throttled {
			t.Errorf("%s: got %v", tc.peer, err)
		}
	}
}

func TestTheMemoryOfFailuresIsBounded(t *testing.T) {
	t.Parallel()
	throttle, err := NewThrottle(1, time.Minute, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 * maxAddresses {
		_ = throttle.fail(from(fmt.Sprintf("10.%d.%d.%d:1", n>>16, n>>8&255, n&255), ""), nil)
	}
	if got := throttle.known.Len(); got != maxAddresses {
		t.Errorf("got %d addresses, want %d", got, maxAddresses)
	}
}

func TestChangesOfTheKeysFileAndMissingScopesAreRecorded(t *testing.T) {
	t.Parallel()
	m := newMinting(t, "scopes: [operate]", secretA)
	audit := &events{}
	m.Audit = audit
	if _, err := m.Admit(requestWith(m.key), Admin); fault.ReasonOf(err) != "SCOPE_MISSING" {
		t.Errorf("got %v", err)
	}
	if _, err := m.mint(t, Grant{Subject: "ann"}); err != nil {
		t.Fatal(err)
	}
	m.write(t, "scopes: [chat]") // with another key beside it
	m.reload(t.Context())
	m.reload(t.Context())
	var got []string
	for _, e := range audit.all {
		got = append(got, e.Action+" "+e.Target)
		if strings.Contains(fmt.Sprint(e), m.key) {
			t.Errorf("an event has the key: %v", e)
		}
	}
	want := "scope.missing /status, token.minted ann, key.added other, key.added server, key.removed other, key.removed server"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got %s, want %s", text, want)
	}
}
