package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
)

const savingAgents = `
models:
  scripted:
    script: |
      models:
        saver:
          rules:
            - when: {toolResult: calculate}
              reply: 'It is {{field .LastResult "value"}}.'
            - when: {lastUser: 'sum'}
              reply: [{call: {name: calculate, arguments: {expression: '6 * 7'}}}]
            - reply: 'I keep {{.LastUser}}.'
agents:
  - {name: saver, model: scripted/saver, tools: [{use: calculate, approval: always}]}
`

// says sends a message in a new session, and returns when its run has ended or waits.
func (r *running) says(t *testing.T, session, text string) {
	t.Helper()
	r.do(t, http.MethodPost, "/chat", fmt.Sprintf(`{"id":%q,"messages":[{"id":"m","role":"user","parts":[{"type":"text","text":%q}]}]}`, session, text))
}

// databaseDesk is a desk whose database is in the folder.
func databaseDesk(t *testing.T, data string) *desk {
	t.Helper()
	return newDesk(t, "HOLDFAST_STATE_SQLITE_PATH="+filepath.Join(data, "state.db"))
}

func TestABackupTakenUnderLoadIsRestoredWithEverythingThatWasCommitted(t *testing.T) {
	t.Parallel()
	agents, data, file := writeAgents(t, savingAgents), t.TempDir(), filepath.Join(t.TempDir(), "backup.db")
	r := startWith(t, nil, "--data", data, "--agents", agents)
	r.says(t, "asks", "a sum")
	r.waitStatus(t, "asks", "suspended_client_tool")
	const before, beside = 5, 20
	for i := range before {
		r.says(t, fmt.Sprint("before-", i), "this")
	}
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		for i := range beside {
			r.says(t, fmt.Sprint("beside-", i), "that")
		}
	}()
	databaseDesk(t, data).expects(0, []string{"wrote the database to " + file}, "backup", file)
	<-loaded
	databaseDesk(t, data).expects(5, []string{"FILE_EXISTS"}, "backup", file)
	r.says(t, "after", "more")
	r.end(t)

	databaseDesk(t, data).expects(5, []string{"FILE_EXISTS"}, "restore", file)
	restored := t.TempDir()
	databaseDesk(t, restored).expects(0, []string{"restored the database from " + file}, "restore", file)
	r = startWith(t, nil, "--data", restored, "--agents", agents)
	for i := range before {
		r.waitStatus(t, fmt.Sprint("before-", i), "completed")
		if got := r.do(t, http.MethodGet, fmt.Sprint("/messages?sessionId=before-", i), ""); !strings.Contains(got, "I keep this.") {
			t.Errorf("before-%d has the messages %s", i, got)
		}
	}
	for i := range beside { // each is whole, or not there
		got := r.do(t, http.MethodGet, fmt.Sprint("/status?sessionId=beside-", i), "")
		if strings.Contains(got, `"sessionId"`) {
			r.waitStatus(t, fmt.Sprint("beside-", i), "completed")
		} else if !strings.Contains(got, "SESSION_NOT_FOUND") {
			t.Errorf("beside-%d is %s", i, got)
		}
	}
	if got := r.do(t, http.MethodGet, "/status?sessionId=after", ""); !strings.Contains(got, "SESSION_NOT_FOUND") {
		t.Errorf("the session of after the backup is %s", got)
	}
	d := newDesk(t, "HOLDFAST_URL="+r.url)
	d.expects(0, []string{"accepted"}, "calls", "approve", "asks", "call_1_1")
	r.waitStatus(t, "asks", "completed")
	if got := r.do(t, http.MethodGet, "/messages?sessionId=asks", ""); !strings.Contains(got, "It is 42.") {
		t.Errorf("the approved session has the messages %s", got)
	}
}

func TestWhatIsNoWholeBackupIsNotRestored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	databaseDesk(t, dir).expects(0, nil, "migrate", "up")
	whole := filepath.Join(dir, "backup.db")
	databaseDesk(t, dir).expects(0, nil, "backup", whole)
	bytes := read(t, whole)
	foreign := filepath.Join(dir, "foreign")
	for name, text := range map[string]string{"cut": string(bytes[:len(bytes)/2]), "foreign": "no database", "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		target := t.TempDir()
		databaseDesk(t, target).expects(2, []string{"BACKUP_INVALID", name}, "restore", filepath.Join(dir, name))
		if left, err := os.ReadDir(target); err != nil || len(left) > 0 {
			t.Errorf("%s: the refusal left %v, %v", name, left, err)
		}
	}
	databaseDesk(t, t.TempDir()).expects(3, []string{"BACKUP_MISSING"}, "restore", filepath.Join(dir, "nothing"))
	databaseDesk(t, t.TempDir()).expects(3, []string{"DATABASE_MISSING"}, "backup", foreign+".copy")

	// The log of a former database would be replayed on the restored one.
	former := t.TempDir()
	if err := os.WriteFile(filepath.Join(former, "state.db-wal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	databaseDesk(t, former).expects(5, []string{"FILE_EXISTS", "state.db-wal"}, "restore", whole)
}

func TestABackupOfPostgresNamesItsTool(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "HOLDFAST_STATE_POSTGRES_URL="+pgtest.URL(t))
	d.expects(2, []string{"BACKUP_UNSUPPORTED", "pg_dump"}, "backup", filepath.Join(t.TempDir(), "x"))
	d.expects(2, []string{"BACKUP_UNSUPPORTED", "pg_restore"}, "restore", filepath.Join(t.TempDir(), "x"))
}

func TestEveryCommandHasAPageOfMan(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man")
	newDesk(t).expects(0, []string{"holdfast.1"}, "man", dir)
	for name, want := range map[string]string{"holdfast.1": "durable runtime", "holdfast-sessions-list.1": "--status", "holdfast-backup.1": "HOLDFAST_STATE_SQLITE_PATH"} {
		if got := strings.ReplaceAll(string(read(t, filepath.Join(dir, name))), `\-`, "-"); !strings.Contains(got, want) {
			t.Errorf("%s has no %q: %s", name, want, got)
		}
	}
}
