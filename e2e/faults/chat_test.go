package faults_test

import (
	"context"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// chats are persistent clients of the chat stream.
type chats struct {
	t  *testing.T
	wg sync.WaitGroup
}

func newChats(t *testing.T) *chats { return &chats{t: t} }

// begin follows the last turn of the session by repeating its request with the same key.
func (c *chats) begin(ctx context.Context, client harness.Client, s *session) {
	c.wg.Go(func() {
		m, err := client.Converse(ctx, s.id, agentType, s.last().ask)
		if err != nil {
			c.t.Errorf("the chat of %s: %v", s.id, err)
			return
		}
		if got, want := m.Text(), s.last().answer; got != want {
			c.t.Errorf("the chat of %s holds another text:\n%s", s.id, compare(got, want))
		}
	})
}

func (c *chats) check() { c.wg.Wait() }
