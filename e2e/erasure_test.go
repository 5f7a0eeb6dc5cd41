package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// erasedWithin bounds the time until the bytes of a file are gone, which a sweep deletes.
const erasedWithin = 3 * time.Minute

// marked is a session whose texts and whose file have a word that nothing else has.
type marked struct{ session, user, word, file string }

// mark talks in a session of the user, in which each stored text has the word, and the answer repeats it.
func mark(t *testing.T, d *harness.Dev, session, user string) marked {
	t.Helper()
	m := marked{session: session, user: user, word: "quagga-" + session + "-marginalia"}
	send := func(method, path string, body any) harness.Answer {
		t.Helper()
		text, isText := body.(string)
		if !isText {
			encoded, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			text = string(encoded)
		}
		answer := d.Do(t, method, path, []byte(text))
		if answer.Code != http.StatusOK {
			t.Fatalf("%s %s: got %d %s", method, path, answer.Code, answer.Body)
		}
		return answer
	}
	send(http.MethodPost, "/start", map[string]any{
		"sessionId": session, "userId": user, "agentType": "talker", "message": "Remember " + m.word + ". ",
		"metadata": map[string]string{"note": m.word}, "state": map[string]string{"note": m.word},
	})
	d.WaitStatus(t, session, "completed")
	var file struct{ ID string }
	if err := json.Unmarshal([]byte(send(http.MethodPost, "/files", strings.Repeat(m.word+" in a file. ", 2000)).Body), &file); err != nil {
		t.Fatal(err)
	}
	m.file = "/files/" + file.ID
	parts := []any{map[string]any{"type": "file", "mediaType": "application/json", "url": m.file}, map[string]any{"type": "text", "text": "And " + m.word}}
	if got := d.Do(t, http.MethodPost, "/chat", encode(t, map[string]any{
		"id": session, "trigger": "submit-message", "messages": []any{map[string]any{"id": "u2", "role": "user", "parts": parts}},
	})); got.Code != http.StatusOK {
		t.Fatalf("got %d %s", got.Code, got.Body)
	}
	d.WaitStatus(t, session, "completed")
	send(http.MethodPatch, "/sessions/"+session, map[string]any{"title": "About " + m.word})
	if answer := d.Do(t, http.MethodGet, m.file, nil); answer.Code != http.StatusOK || !strings.Contains(answer.Body, m.word) {
		t.Fatalf("%s: got %d", m.file, answer.Code)
	}
	return m
}

func encode(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// holders returns the files below the folder that have the word.
func holders(t *testing.T, folder, word string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(word)) {
			files = append(files, path)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) { // a file may go while the folder is read
		t.Fatal(err)
	}
	return files
}

// waitErased waits until no file has the word, except for those of the live log if mayLog is set.
func (m marked) waitErased(t *testing.T, d *harness.Dev, mayLog bool) {
	t.Helper()
	harness.WaitFor(t, erasedWithin, m.word+" is in no file of the data folder", func() (bool, string) {
		var left []string
		for _, path := range holders(t, d.Data, m.word) {
			if !mayLog || !strings.HasPrefix(path, filepath.Join(d.Data, "stream")) {
				left = append(left, path)
			}
		}
		return len(left) == 0, fmt.Sprint(left)
	})
	for _, path := range []string{m.file, "/sessions/" + m.session, "/sse?sessionId=" + m.session, "/history?sessionId=" + m.session} {
		if answer := d.Do(t, http.MethodGet, path, nil); answer.Code != http.StatusNotFound {
			t.Errorf("%s: got %d, want 404", path, answer.Code)
		}
	}
	if messages := d.Messages(t, m.session); len(messages) > 0 {
		t.Errorf("the erased session has the messages %v, want none", messages)
	}
}

// The live log keeps the bytes of erased records as SECURITY.md says, until it holds nothing else.
func TestErasedContentIsInNoFile(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents(), "HOLDFAST_STREAM_PARTITIONS=1")
	ofSession, ofUser, ofTenant := mark(t, d, "first", "mia"), mark(t, d, "second", "leo"), mark(t, d, "third", "ann")
	for _, m := range []marked{ofSession, ofUser, ofTenant} {
		if found := holders(t, d.Data, m.word); len(found) < 2 {
			t.Fatalf("%s is in %v alone, so the test would not see what is left", m.word, found)
		}
	}
	erase := func(path string) {
		t.Helper()
		if answer := d.Do(t, http.MethodDelete, path, nil); answer.Code != http.StatusOK {
			t.Fatalf("DELETE %s: got %d %s", path, answer.Code, answer.Body)
		}
	}
	erase("/sessions/first")
	ofSession.waitErased(t, d, true)
	erase("/users/leo")
	ofUser.waitErased(t, d, true)
	if found := holders(t, d.Data, ofTenant.word); len(found) < 2 {
		t.Errorf("%s is in %v alone, and nobody has erased it", ofTenant.word, found)
	}
	erase("/tenant")
	for _, m := range []marked{ofSession, ofUser, ofTenant} {
		m.waitErased(t, d, false)
	}
}
