package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// attachments are numbers of chunks in a run, and of measurements.
var attachments = []struct{ chunks, times int }{{200, 200}, {10_000, 20}}

// BenchmarkStreamAttach measures how long a reader waits that attaches in the middle of a run.
func BenchmarkStreamAttach(b *testing.B) {
	for b.Loop() {
		name := func(i int) string { return fmt.Sprint("attach-", i) }
		s, _, writers := startClaimed(b, harness.Options{}, len(attachments), name)
		raw := startRawLog(b)
		theirs := raw.writers(len(attachments), "attach")
		fmt.Print("\nAttaching to a live run by SSE, with a new connection, alone and beside another reader of the session; beside a nats.go\n" +
			"ordered consumer of the same records, on a connection that is open.\n")
		for i, c := range attachments {
			chunks, times := sized(c.chunks), sized(c.times)
			for range chunks {
				text := stamp(time.Now())
				if err := writers[i].say(b.Context(), text); err != nil {
					b.Fatal(err)
				}
				if err := theirs[i].say(b.Context(), text); err != nil {
					b.Fatal(err)
				}
			}
			alone := attaching(b, times, func() (first, all time.Duration, err error) { return attachSSE(b.Context(), s.Client, name(i), chunks) })
			other := gather(b, s.Client, 1, func(int) string { return name(i) })
			beside := attaching(b, times, func() (first, all time.Duration, err error) { return attachSSE(b.Context(), s.Client, name(i), chunks) })
			other.close()
			want := attaching(b, times, func() (first, all time.Duration, err error) { return raw.attach(b.Context(), i, chunks) })
			fmt.Printf("%6d chunks: %v\n", chunks, alone)
			fmt.Printf("   beside one: %v\n", beside)
			fmt.Printf("          raw: %v: %.2fx to the first, %.2fx to the last\n", want,
				float64(alone.first.p50)/float64(want.first.p50), float64(alone.all.p50)/float64(want.all.p50))
			b.ReportMetric(ms(alone.first.p50), fmt.Sprintf("ms-first-%d", chunks))
			b.ReportMetric(ms(alone.all.p50), fmt.Sprintf("ms-caught-up-%d", chunks))
		}
	}
}

// waits holds the readers' waits for their first chunk and for all of them.
type waits struct{ first, all load }

func (w waits) String() string {
	return fmt.Sprintf("first chunk p50 %8s, p99 %8s; all p50 %8s, p99 %8s (n=%d)", w.first.p50, w.first.p99, w.all.p50, w.all.p99, w.all.n)
}

func attaching(b *testing.B, times int, once func() (first, all time.Duration, err error)) waits {
	b.Helper()
	var firsts, alls []time.Duration
	for n := range times + 1 {
		first, all, err := once()
		if err != nil {
			b.Fatal(err)
		}
		if n > 0 { // the first time opens files
			firsts, alls = append(firsts, first), append(alls, all)
		}
	}
	return waits{loadOf(firsts, time.Second), loadOf(alls, time.Second)}
}

// attachSSE reads until caught-up, and expects all chunks before it.
func attachSSE(ctx context.Context, c harness.Client, session string, chunks int) (first, all time.Duration, err error) {
	begin := time.Now()
	s, err := attach(ctx, c, session)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = s.conn.Close() }()
	n := 0
	err = s.until(func(line []byte) bool {
		if bytes.HasPrefix(line, []byte("event: chunk")) && first == 0 {
			first = time.Since(begin)
		}
		if _, said := s.stampOf(line); said {
			n++
		}
		return bytes.HasPrefix(line, []byte("event: caught-up"))
	})
	if err == nil && n != chunks {
		err = fmt.Errorf("%d chunks came, want %d", n, chunks)
	}
	return first, time.Since(begin), err
}

// attach reads the records of a subject.
func (r *rawLog) attach(ctx context.Context, i, records int) (first, all time.Duration, err error) {
	begin := time.Now()
	consumer, err := r.js[0].OrderedConsumer(ctx, fmt.Sprintf("RAW_%02d", i%partitions),
		jetstream.OrderedConsumerConfig{FilterSubjects: []string{rawSubject("chunks", "attach", i)}})
	if err != nil {
		return 0, 0, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return 0, 0, err
	}
	defer messages.Stop()
	for n := range records {
		if _, err := messages.Next(); err != nil {
			return 0, 0, err
		}
		if n == 0 {
			first = time.Since(begin)
		}
	}
	return first, time.Since(begin), nil
}
