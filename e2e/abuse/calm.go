package abuse

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// Calm is what a calm client and the gateway's process saw during an attack.
type Calm struct {
	First []time.Duration // from each request to its first text, sorted
	Peak  int64           // the gateway's largest resident memory in bytes
	Err   error           // the first failed turn; nil for none
}

// Quantile returns the q-quantile of First.
func (c Calm) Quantile(q float64) time.Duration {
	if len(c.First) == 0 {
		return 0
	}
	return c.First[int(q*float64(len(c.First)-1))]
}

const (
	calmEvery   = 50 * time.Millisecond // between turns
	sampleEvery = 20 * time.Millisecond
	turnLimit   = 30 * time.Second
)

// Watch runs the attack, and one turn of a calm client after another until the attack has ended. Sessions begin
// with the name.
func Watch(ctx context.Context, s *harness.System, agent, name string, attack func()) Calm {
	attacked := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(attacked)
		attack()
	})
	var calm Calm
	wg.Go(func() {
		for n := 0; ; n++ {
			first, err := turn(ctx, s.Client, fmt.Sprintf("%s-%d", name, n), agent)
			if err != nil {
				calm.Err = err
				return
			}
			calm.First = append(calm.First, first)
			select {
			case <-attacked:
				return
			case <-time.After(calmEvery):
			}
		}
	})
	sample := time.NewTicker(sampleEvery)
	defer sample.Stop()
	peak := int64(0)
	for ended := false; !ended; {
		peak = max(peak, s.Gateway.Resident())
		select {
		case <-sample.C:
		case <-attacked:
			ended = true
		}
	}
	wg.Wait()
	calm.Peak = peak
	slices.Sort(calm.First)
	return calm
}

// turn runs a turn over a connection of its own, without any retry, and returns the time to its first text.
func turn(ctx context.Context, c harness.Client, session, agent string) (first time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/chat", bytes.NewReader(harness.ChatBody(session, agent, "Go on.")))
	if err != nil {
		return 0, err
	}
	r.Close = true
	r.Header.Set("Authorization", "Bearer "+c.Key)
	begin := time.Now()
	answer, err := http.DefaultClient.Do(r)
	for dropped(err) && ctx.Err() == nil { // its connection was replaced before the gateway had read the request: a message may be repeated
		r.Body, _ = r.GetBody() // that of a bytes.Reader does not fail
		answer, err = http.DefaultClient.Do(r)
	}
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if first == 0 && strings.Contains(lines.Text(), `"type":"text-delta"`) {
			first = time.Since(begin)
		}
		if lines.Text() == "data: [DONE]" && first > 0 {
			return first, nil
		}
	}
	return 0, errors.Join(fmt.Errorf("POST /chat: %s: the answer is not whole", answer.Status), lines.Err())
}

// dropped reports whether the connection of a request was closed before an answer.
func dropped(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) }
