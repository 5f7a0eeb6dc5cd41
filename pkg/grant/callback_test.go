package grant_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
)

func callbackKeys(t testing.TB, secrets string) grant.CallbackKeys {
	t.Helper()
	k, err := grant.NewCallbackKeys(secrets)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var aCallback = grant.Callback{Tenant: "acme", Session: "s 1", Run: "run", Call: "call/ü", Expires: now.Add(time.Hour)}

func TestATokenIsValidUntilItsTime(t *testing.T) {
	t.Parallel()
	keys := callbackKeys(t, first)
	token := grant.SignCallback(keys.Of("acme", "s 1"), aCallback)
	if read, err := grant.ReadCallback(token); err != nil || read != aCallback {
		t.Errorf("got %+v, %v", read, err)
	}
	if got, err := keys.Verify(token, aCallback.Expires.Add(-time.Millisecond)); err != nil || got != aCallback {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := keys.Verify(token, aCallback.Expires); fault.ReasonOf(err) != "CALLBACK_EXPIRED" {
		t.Errorf("at its time: got %v", err)
	}
	if strings.Trim(token, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
		t.Errorf("%q is no segment of a URL", token)
	}
}

// A key of a session makes no token of another session, and an expired forgery is still a forgery.
func TestATokenOfAnotherKeyIsUnknown(t *testing.T) {
	t.Parallel()
	keys := callbackKeys(t, first)
	good := grant.SignCallback(keys.Of("acme", "s 1"), aCallback)
	forged := map[string]string{
		"of another session": grant.SignCallback(keys.Of("acme", "s 2"), aCallback),
		"of another tenant":  grant.SignCallback(keys.Of("other", "s 1"), aCallback),
		"of another secret":  grant.SignCallback(callbackKeys(t, second).Of("acme", "s 1"), aCallback),
		"empty":              "",
		"not base64":         "%%%",
		"too long":           strings.Repeat("A", 4<<10),
		"cut":                good[:len(good)-2],
	}
	for i := range len(good) {
		flipped := []byte(good)
		flipped[i] ^= 1
		forged["changed at "+string(rune('0'+i%10))+good[:i]] = string(flipped)
	}
	for name, token := range forged {
		if _, err := keys.Verify(token, aCallback.Expires); fault.ReasonOf(err) != "CALLBACK_UNKNOWN" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := callbackKeys(t, "").Verify(good, now); fault.ReasonOf(err) != "CALLBACK_UNKNOWN" {
		t.Errorf("without a secret: got %v", err)
	}
	if key := callbackKeys(t, "").Of("acme", "s 1"); key != nil {
		t.Errorf("without a secret: got the key %x", key)
	}
}

func TestASecretOfCallbacksIsReplaced(t *testing.T) {
	t.Parallel()
	old, both, renewed := callbackKeys(t, first), callbackKeys(t, second+","+first), callbackKeys(t, second)
	token := grant.SignCallback(old.Of("acme", "s 1"), aCallback)
	if _, err := both.Verify(token, now); err != nil {
		t.Errorf("while both are configured: %v", err)
	}
	if _, err := renewed.Verify(token, now); fault.ReasonOf(err) != "CALLBACK_UNKNOWN" {
		t.Errorf("after the rotation: %v", err)
	}
	if _, err := renewed.Verify(grant.SignCallback(both.Of("acme", "s 1"), aCallback), now); err != nil {
		t.Errorf("the first secret must sign: %v", err)
	}
	if _, err := grant.NewCallbackKeys(first + ",short"); fault.ReasonOf(err) != "CALLBACK_KEYS_INVALID" {
		t.Errorf("got %v", err)
	}
}
