package auth

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestAChangedFileOfKeysTakesEffectWithinSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old, oldSum := New()
		other, otherSum := New()
		late, lateSum := New()
		file := filepath.Join(t.TempDir(), "keys.yaml")
		write := func(lines ...string) {
			if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(checkInterval + time.Second)
			synctest.Wait()
		}
		line := func(sum, more string) string { return "- {name: k, tenant: acme, sha256: " + sum + more + "}" }
		if err := os.WriteFile(file, []byte(line(oldSum, "")+"\n"+line(otherSum, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		keys, err := ReadKeys(file, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		callers := &Credentials{Keys: keys, Now: time.Now, Log: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, stop := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() { callers.Watch(ctx, func() {}) })
		defer watching.Wait() // the file is deleted behind the test
		defer stop()
		check := func(when, key, want string) {
			t.Helper()
			_, err := callers.Admit(requestWith(key), Read)
			if got := fault.ReasonOf(err); got != want {
				t.Errorf("%s: got %q, want %q", when, got, want)
			}
		}
		check("at first", old, "")
		write(line(otherSum, ""), line(lateSum, ", expires: "+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
		check("a removed key", old, "API_KEY_WRONG")
		check("a key that stays", other, "")
		check("a new key", late, "")
		write("- {name: half")
		time.Sleep(10 * checkInterval)
		synctest.Wait()
		check("an invalid file", other, "")
		if n := strings.Count(log.String(), "invalid"); n != 1 {
			t.Errorf("an invalid file is logged %d times, want once:\n%s", n, log.String())
		}
		time.Sleep(time.Hour)
		check("behind its expiry", late, "API_KEY_EXPIRED")
		check("a key without expiry", other, "")
	})
}

// requestWith returns a request with the credential.
func requestWith(sent string) *http.Request {
	return &http.Request{URL: &url.URL{Path: "/status"}, RemoteAddr: "192.0.2.1:4000", Header: http.Header{"Authorization": {"Bearer " + sent}}}
}
