package builtin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// notesFile has one JSON object per line: {"key", "text"}.
const notesFile = "notes.jsonl"

// maxNoteBytes limits a line of the file.
const maxNoteBytes = 1 << 20

// notebook is a countable effect: lines in a file.
type notebook struct {
	dir string
	mu  sync.Mutex
}

type entry struct {
	Key  string `json:"key"`
	Text string `json:"text"`
}

type noteInput struct {
	Text     string `json:"text" jsonschema:"what to write down"`
	BeforeMs int64  `json:"beforeMs,omitempty" jsonschema:"how long to wait before writing, in milliseconds"`
	AfterMs  int64  `json:"afterMs,omitempty" jsonschema:"how long to wait after writing, in milliseconds"`
}

type noteOutput struct {
	Written bool `json:"written"`
}

// noteTimeout allows for both pauses.
const noteTimeout = 2*maxPause + 5*time.Second

func (b *notebook) note() agent.Tool {
	write := func(ctx context.Context, call *agent.Call, in noteInput) (noteOutput, error) {
		return b.write(ctx, call, in, false)
	}
	return agent.NewTool("note", "Writes a line into the notebook.", write, agent.Timeout(noteTimeout))
}

func (b *notebook) noteOnce() agent.Tool {
	write := func(ctx context.Context, call *agent.Call, in noteInput) (noteOutput, error) {
		return b.write(ctx, call, in, true)
	}
	return agent.NewTool("note_once", "Writes a line into the notebook, once however often the call is repeated.", write,
		agent.Safe(), agent.Timeout(noteTimeout))
}

func (b *notebook) write(ctx context.Context, call *agent.Call, in noteInput, once bool) (noteOutput, error) {
	if err := pause(ctx, in.BeforeMs); err != nil {
		return noteOutput{}, err
	}
	written, err := b.add(entry{Key: call.IdempotencyKey, Text: in.Text}, once)
	if err != nil {
		return noteOutput{}, err
	}
	return noteOutput{written}, pause(ctx, in.AfterMs)
}

// add appends a line. With once it does nothing if a line has the key already.
func (b *notebook) add(e entry, once bool) (written bool, err error) {
	line, err := json.Marshal(e)
	if err != nil {
		return false, fmt.Errorf("write a note: %w", err)
	}
	if len(line) >= maxNoteBytes {
		return false, fmt.Errorf("the note is larger than %d bytes", maxNoteBytes)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	path := filepath.Join(b.dir, notesFile)
	if once {
		if has, err := hasKey(path, e.Key); has || err != nil {
			return false, err
		}
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return false, fmt.Errorf("open the notebook: %w", err)
	}
	_, err = file.Write(append(line, '\n')) // a single write keeps the lines of several processes apart
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return false, fmt.Errorf("write a note: %w", err)
	}
	return true, nil
}

func hasKey(path, key string) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open the notebook: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxNoteBytes)
	for lines.Scan() {
		var e entry
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Key == key {
			return true, nil
		}
	}
	if err := lines.Err(); err != nil {
		return false, fmt.Errorf("read the notebook: %w", err)
	}
	return false, nil
}
