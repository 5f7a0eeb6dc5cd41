package bench_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// rawWriters is the number of concurrent clients in a baseline, equal to the number of concurrent turns.
const rawWriters = 32

// rawWindow is the duration of a baseline.
const rawWindow = 3 * time.Second

// rawStepCommits measures the best case of a library: the rows of one step, each commit in its own transaction.
// It returns commits/s.
func rawStepCommits(b *testing.B, url string) float64 {
	pool, err := pgxpool.New(b.Context(), url+poolSize(url))
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(b.Context(), rawSchema); err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 400)
	return perSecond(b, rawWriters, rawWindow, func(ctx context.Context, writer, n int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return rawStep(ctx, tx, strconv.Itoa(writer), n, body)
		})
	})
}

func poolSize(url string) string {
	for _, c := range url {
		if c == '?' {
			return fmt.Sprintf("&pool_max_conns=%d", rawWriters)
		}
	}
	return fmt.Sprintf("?pool_max_conns=%d", rawWriters)
}

const rawSchema = `
CREATE TABLE raw_sessions (id text PRIMARY KEY, version bigint NOT NULL, step_count int NOT NULL, state jsonb NOT NULL);
CREATE TABLE raw_messages (session_id text, ordinal bigint, role text NOT NULL, body bytea NOT NULL, PRIMARY KEY (session_id, ordinal));
CREATE TABLE raw_checkpoints (session_id text, step int, message_count bigint NOT NULL, PRIMARY KEY (session_id, step));`

func rawStep(ctx context.Context, tx pgx.Tx, session string, n int, body []byte) error {
	_, err := tx.Exec(ctx, `INSERT INTO raw_sessions (id, version, step_count, state) VALUES ($1, 1, 1, '{"topic":"weather"}')
		ON CONFLICT (id) DO UPDATE SET version = raw_sessions.version + 1, step_count = raw_sessions.step_count + 1`, session)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO raw_messages (session_id, ordinal, role, body) VALUES ($1, $2, 'assistant', $4), ($1, $3, 'tool', $4)`,
		session, 2*n, 2*n+1, body)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO raw_checkpoints (session_id, step, message_count) VALUES ($1, $2, $3)`, session, n, 2*n+2)
	return err
}

// rawPublishes measures acknowledged, fenced publishes to a JetStream server on loopback through nats.go, one in
// flight per subject. It returns publishes/s.
func rawPublishes(b *testing.B) float64 {
	js := rawJetStream(b)
	_, err := js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "RAW", Subjects: []string{"raw.>"}, Storage: jetstream.FileStorage})
	if err != nil {
		b.Fatal(err)
	}
	last := make([]uint64, rawWriters)
	body := make([]byte, 120)
	return perSecond(b, rawWriters, rawWindow, func(ctx context.Context, writer, _ int) error {
		ack, err := js.Publish(ctx, "raw."+strconv.Itoa(writer), body, jetstream.WithExpectLastSequencePerSubject(last[writer]))
		if err == nil {
			last[writer] = ack.Sequence
		}
		return err
	})
}

func rawJetStream(b *testing.B) jetstream.JetStream {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: b.TempDir(), NoSigs: true})
	if err != nil {
		b.Fatal(err)
	}
	s.Start()
	b.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		b.Fatal("the NATS server does not get ready")
	}
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		b.Fatal(err)
	}
	return js
}

// perSecond lets every writer call do in sequence until the window closes, and returns the calls per second.
func perSecond(b *testing.B, writers int, window time.Duration, do func(ctx context.Context, writer, n int) error) float64 {
	b.Helper()
	var calls atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for writer := range writers {
		wg.Go(func() {
			for n := 0; time.Since(begin) < window; n++ {
				if err := do(b.Context(), writer, n); err != nil {
					b.Error(err)
					return
				}
				calls.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(calls.Load()) / time.Since(begin).Seconds()
}
