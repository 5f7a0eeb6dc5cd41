// Command worker is the floor: the agent on pgx and an embedded JetStream, without a runtime.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-run/holdfast/bench/internal/agent"
	"github.com/holdfast-run/holdfast/bench/internal/worker"
)

const (
	connections = "16" // as in Holdfast's state service
	schema      = `
CREATE TABLE floor_sessions (id text PRIMARY KEY, epoch bigint NOT NULL, step int NOT NULL, status text NOT NULL) WITH (fillfactor = 80);
CREATE TABLE floor_messages (session text, ordinal int, id text NOT NULL, role text NOT NULL, body jsonb NOT NULL, PRIMARY KEY (session, ordinal));`
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")+"&pool_max_conns="+connections)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, schema); err != nil {
		return err
	}
	bus, err := server.NewServer(
		&server.Options{JetStream: true, StoreDir: os.Getenv("STREAM_DIR"), DontListen: true, NoLog: true, NoSigs: true},
	)
	if err != nil {
		return err
	}
	bus.Start()
	defer bus.Shutdown()
	conn, err := nats.Connect("", nats.InProcessServer(bus))
	if err != nil {
		return err
	}
	defer conn.Close()
	log, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	if _, err := log.CreateStream(ctx, jetstream.StreamConfig{Name: "floor", Subjects: []string{"floor.*"}}); err != nil {
		return err
	}
	f := floor{pool: pool, log: log}
	return worker.Main(ctx, f.run)
}

type floor struct {
	pool *pgxpool.Pool
	log  jetstream.JetStream
}

func (f floor) run(ctx context.Context, id string) error {
	ask := agent.Ask()
	var start pgx.Batch
	start.Queue(`INSERT INTO floor_sessions VALUES ($1, 1, 0, 'active')`, id)
	queueMessage(&start, id, 0, ask)
	if err := f.pool.SendBatch(ctx, &start).Close(); err != nil {
		return err
	}
	for step := 1; step <= agent.Steps; step++ {
		if err := f.step(ctx, id, step); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return nil
}

// step commits the answer and then the result.
func (f floor) step(ctx context.Context, id string, step int) error {
	answer, status := agent.Model(step), "active"
	if answer.Call == nil {
		status = "completed"
	}
	if err := f.commit(ctx, id, 2*step-1, answer, `UPDATE floor_sessions SET epoch = epoch WHERE id = $1 AND step = $2 - 1 AND epoch = 1 AND status = 'active' AND $3 <> ''`, step, status); err != nil {
		return err
	}
	var result agent.Message
	if answer.Call != nil {
		var err error
		if result, err = agent.Tool(step, *answer.Call); err != nil {
			return err
		}
	}
	published, err := f.publish(id, agent.Chunks(step, answer, &result))
	if err != nil {
		return err
	}
	if err := f.commit(ctx, id, 2*step, result, `UPDATE floor_sessions SET step = $2, status = $3 WHERE id = $1 AND step = $2 - 1 AND epoch = 1`, step, status); err != nil {
		return err
	}
	for _, p := range published {
		select {
		case <-p.Ok():
		case err := <-p.Err():
			return err
		}
	}
	return nil
}

// commit is one transaction in one round trip: a fenced update and a message.
func (f floor) commit(ctx context.Context, id string, ordinal int, m agent.Message, update string, step int, status string) error {
	var batch pgx.Batch
	batch.Queue(update, id, step, status).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != 1 {
			return errors.New("the session has another owner")
		}
		return nil
	})
	queueMessage(&batch, id, ordinal, m)
	return f.pool.SendBatch(ctx, &batch).Close()
}

func queueMessage(batch *pgx.Batch, id string, ordinal int, m agent.Message) {
	batch.Queue(`INSERT INTO floor_messages VALUES ($1, $2, $3, $4, $5)`, id, ordinal, m.ID, m.Role, m)
}

func (f floor) publish(id string, chunks []agent.Chunk) ([]jetstream.PubAckFuture, error) {
	var published []jetstream.PubAckFuture
	for _, c := range chunks {
		text, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		p, err := f.log.PublishAsync("floor."+id, text)
		if err != nil {
			return nil, err
		}
		published = append(published, p)
	}
	return published, nil
}
