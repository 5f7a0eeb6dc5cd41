package auth

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func FuzzAKeysFileIsReadOrRefused(f *testing.F) {
	const digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for _, seed := range []string{
		"- {name: a, tenant: acme, sha256: " + digest + "}\n- {name: b, tenant: b, sha256: " + digest + ", scopes: [operate], expires: 2030-01-02T03:04:05Z}\n",
		"[]", "- {tenant: \"\", sha256: x}", "- &a {tenant: *a}", "a: [", "- {tenant: [], sha256: {}}", "\x00", "- !!binary x",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := parseKeys("keys.yaml", text)
		if err != nil {
			if !errors.Is(err, fault.Invalid) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		for _, k := range keys {
			if k.Tenant == "" || len(k.Tenant) > maxID {
				t.Errorf("%q has a key of the tenant %q", text, k.Tenant)
			}
		}
	})
}

func FuzzAHeaderIsNoKey(f *testing.F) {
	for _, seed := range []string{"Bearer x", "bearer ", "Basic eA==", "Bearer", "BEARER\tx"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		keys := &Keys{}
		keys.list.Store(&[]key{{Identity: Identity{Tenant: "acme"}}}) // no text has the digest zero
		c := Credentials{Keys: keys, Now: time.Now}
		caller, err := c.identify(&http.Request{Header: http.Header{"Authorization": {header}}})
		if caller.Tenant != "" || !errors.Is(err, fault.Unauthenticated) {
			t.Errorf("%q: got %q, %v", header, caller.Tenant, err)
		}
	})
}
