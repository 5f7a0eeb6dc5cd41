package grant_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
)

var (
	first  = strings.Repeat("a", grant.MinSecret)
	second = strings.Repeat("b", grant.MinSecret)
	now    = time.UnixMilli(1_795_000_000_000)
)

func keys(t testing.TB, secret string) grant.Keys {
	t.Helper()
	k, err := grant.Config{Secret: secret}.Keys()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func anyGrant(t *rapid.T) grant.Grant {
	id := rapid.StringN(0, 256, 256)
	g := grant.Grant{
		Tenant: id.Draw(t, "tenant"), Root: id.Draw(t, "root"), Session: id.Draw(t, "session"), Run: id.Draw(t, "run"),
		Epoch: rapid.Int64().Draw(t, "epoch"),
	}
	if rapid.Bool().Draw(t, "expires") {
		g.Expires = now.Add(time.Duration(rapid.Int64Range(1, 1000).Draw(t, "ttl")) * time.Millisecond)
	}
	return g
}

func TestASignedGrantIsReadAsItWas(t *testing.T) {
	t.Parallel()
	k := keys(t, first)
	rapid.Check(t, func(t *rapid.T) {
		want := anyGrant(t)
		got, err := k.Verify(k.Sign(want), now)
		if err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	})
}

func TestAChangedGrantIsRefused(t *testing.T) {
	t.Parallel()
	k := keys(t, first)
	rapid.Check(t, func(t *rapid.T) {
		signed := k.Sign(anyGrant(t))
		at := rapid.IntRange(0, len(signed)-1).Draw(t, "at")
		switch rapid.IntRange(0, 2).Draw(t, "change") {
		case 0:
			signed[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		case 1:
			if signed = signed[:at]; at == 0 {
				return // missing, not changed
			}
		default:
			signed = append(signed, 0)
		}
		if got, err := k.Verify(signed, now); fault.ReasonOf(err) != "GRANT_REFUSED" {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestTheFieldsOfAGrantCannotMoveIntoEachOther(t *testing.T) {
	t.Parallel()
	k := keys(t, first)
	one, other := k.Sign(grant.Grant{Tenant: "ab", Session: "c"}), k.Sign(grant.Grant{Tenant: "a", Session: "bc"})
	if string(one) == string(other) {
		t.Error("two grants have the same bytes")
	}
}

func TestAnExpiredGrantIsRefusedFromItsEndOn(t *testing.T) {
	t.Parallel()
	k := keys(t, first)
	signed := k.Sign(grant.Grant{Tenant: "acme", Session: "s", Expires: now})
	if _, err := k.Verify(signed, now.Add(-time.Millisecond)); err != nil {
		t.Errorf("before its end: %v", err)
	}
	if _, err := k.Verify(signed, now); fault.ReasonOf(err) != "GRANT_REFUSED" {
		t.Errorf("at its end: got %v", err)
	}
}

func TestSecretsRotate(t *testing.T) {
	t.Parallel()
	old, both, rotated := keys(t, first), keys(t, second+","+first), keys(t, second)
	g := grant.Grant{Tenant: "acme", Root: "s", Session: "s", Run: "r", Epoch: 3}
	for _, test := range []struct {
		name   string
		signer grant.Keys
		reader grant.Keys
		reason string
	}{
		{"the old grant, during the rotation", old, both, ""},
		{"the new grant, during the rotation", both, rotated, ""},
		{"the old grant, after the rotation", old, rotated, "GRANT_REFUSED"},
	} {
		if _, err := test.reader.Verify(test.signer.Sign(g), now); fault.ReasonOf(err) != test.reason {
			t.Errorf("%s: got %v, want %q", test.name, err, test.reason)
		}
	}
}

func TestWithoutASecretNothingIsSignedAndNothingVerifies(t *testing.T) {
	t.Parallel()
	none := keys(t, "")
	if none.Enabled() || none.Sign(grant.Grant{Tenant: "acme"}) != nil {
		t.Error("a grant was signed without a secret")
	}
	signed := keys(t, first).Sign(grant.Grant{Tenant: "acme"})
	if _, err := none.Verify(signed, now); fault.ReasonOf(err) != "GRANT_REFUSED" {
		t.Errorf("got %v", err)
	}
	if _, err := none.Verify(nil, now); fault.ReasonOf(err) != "GRANT_MISSING" {
		t.Errorf("got %v", err)
	}
}

func TestAShortSecretIsRefused(t *testing.T) {
	t.Parallel()
	for secret, reason := range map[string]string{
		first: "", first[1:]: "GRANT_SECRET_INVALID", first + ",": "GRANT_SECRET_INVALID", first + "," + second[1:]: "GRANT_SECRET_INVALID",
	} {
		if _, err := (grant.Config{Secret: secret}).Keys(); fault.ReasonOf(err) != reason {
			t.Errorf("%d bytes: got %v, want %q", len(secret), err, reason)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	k := keys(b, first)
	signed := k.Sign(grant.Grant{
		Tenant: "acme", Root: "ses_0123456789abcdef", Session: "ses_0123456789abcdef", Run: "run_ov4gpshfk3nwqnvmame36dpbpi", Epoch: 7,
	})
	b.ReportMetric(float64(len(signed)), "bytes")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Verify(signed, now); err != nil {
			b.Fatal(err)
		}
	}
}
