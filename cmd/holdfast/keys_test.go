package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestAKeyIsListedRotatedAndRevoked(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.yaml")
	keys := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if err := run(t.Context(), append([]string{"keys"}, append(args, "--file", file)...), nil, &out, io.Discard); err != nil {
			t.Fatalf("keys %s: %v", args, err)
		}
		return out.String()
	}
	keys("new", "--tenant", "acme", "--name", "web", "--scopes", "operate,read", "--subject", "ann")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got a new file with the mode %v, %v; want 0600", info.Mode(), err)
	}
	keys("new", "--tenant", "acme", "--name", "ci", "--expires", "720h")
	if err := os.WriteFile(file, append(read(t, file), "- {name: web, tenant: other, sha256: "+strings.Repeat("ab", 32)+", scopes: [operate]}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	month := time.Now().Add(720 * time.Hour).UTC().Format("2006-01-02T")
	list := strings.Split(strings.TrimSpace(keys("list")), "\n")
	for i, want := range [][]string{{"NAME", "EXPIRES"}, {"web", "acme", "ann", "operate,read", "never"}, {"ci", "acme", "read,chat,approve", month}, {"web", "other", "operate", "abababababab", "never"}} {
		for _, part := range want {
			if i >= len(list) || !strings.Contains(list[i], part) {
				t.Errorf("line %d lacks %q:\n%s", i, part, strings.Join(list, "\n"))
			}
		}
	}
	next := strings.TrimSpace(keys("rotate", "--tenant", "other", "--name", "web", "--grace", "720h"))
	if text := string(read(t, file)); strings.Contains(text, next) || !strings.HasPrefix(next, "hf_") || strings.Count(text, "tenant: other") != 2 ||
		strings.Count(text, "scopes: [operate]") != 2 || strings.Count(text, "expires: "+month) != 2 {
		t.Errorf("the successor %q and the expiry of the former key are not in\n%s", next, text)
	}
	keys("revoke", "--tenant", "other", "--name", "web")
	keys("revoke", "--tenant", "acme", "--name", "ci")
	for reason, args := range map[string][]string{
		"KEY_NOT_FOUND": {"keys", "revoke", "--tenant", "acme", "--name", "ci", "--file", file},
		"LAST_KEY":      {"keys", "revoke", "--tenant", "acme", "--name", "web", "--file", file},
		"FILE_MISSING":  {"keys", "list", "--file", filepath.Join(t.TempDir(), "none")},
		"SCOPE_UNKNOWN": {"keys", "new", "--tenant", "acme", "--scopes", "chat,root"},
	} {
		if err := run(t.Context(), args, nil, io.Discard, io.Discard); fault.ReasonOf(err) != reason {
			t.Errorf("%s: got %v, want %s", args, err, reason)
		}
	}
	if text := string(read(t, file)); strings.Count(text, "sha256:") != 1 || !strings.Contains(text, "name: web") {
		t.Errorf("got\n%s\nwant the key web of acme alone", text)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
