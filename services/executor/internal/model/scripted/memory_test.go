package scripted_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Not parallel: it measures the memory of the process.
func TestAWaitingCallUsesLittleMemory(t *testing.T) {
	const calls = 2000
	m := parse(t, `
  - when: {lastUser: '(?P<what>sea)'}
    reply:
      - text: 'The {{.Group.what}} is calm today.'
      - wait: 1h
      - call: {name: f, arguments: {city: '{{.LastUser}}'}}
`)
	// A long conversation, which belongs to the caller.
	var conversation []agent.Message
	for n := range 20 {
		conversation = append(conversation, user(fmt.Sprint("Question ", n, strings.Repeat(" and more", 20))), assistant(agent.Text{Text: "Answer."}))
	}
	request := newRequest(append(conversation, user("How is the sea?"))...)

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	before := memoryInUse()
	var waiting sync.WaitGroup
	for range calls {
		waiting.Add(1)
		wg.Go(func() {
			received := 0
			for e := range m.Generate(ctx, request) {
				if _, ok := e.(model.TextDelta); ok {
					if received++; received == 5 {
						waiting.Done()
					}
				}
			}
		})
	}
	waiting.Wait()
	each := (memoryInUse() - before) / calls
	t.Logf("%d bytes each", each)
	if each > 16<<10 {
		t.Errorf("got %d bytes for each waiting call, want at most 16 KiB", each)
	}
}

// memoryInUse returns the bytes of heap and stacks after a collection.
func memoryInUse() int {
	runtime.GC()
	runtime.GC() // the first collection shrinks stacks, the second frees them
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int(s.HeapAlloc + s.StackInuse)
}
