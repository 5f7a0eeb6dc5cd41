// Command worker is the agent as a workflow of DBOS.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/holdfast-run/holdfast/bench/internal/agent"
	"github.com/holdfast-run/holdfast/bench/internal/worker"
)

const shutdownGrace = 5 * time.Second

func main() {
	var a workflows
	flag.BoolVar(&a.stream, "stream", false, "write the chunks of each step to a stream")
	flag.BoolVar(&a.oneRecord, "one-record", false, "run model and tool as one step")
	flag.Parse()
	if err := run(context.Background(), a); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, a workflows) error {
	runtime, err := dbos.NewContext(ctx, dbos.Config{
		AppName: "bench", DatabaseURL: os.Getenv("DATABASE_URL"),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	dbos.RegisterWorkflow(runtime, a.run)
	if err := dbos.Launch(runtime); err != nil {
		return err
	}
	defer dbos.Shutdown(runtime, shutdownGrace)
	return worker.Main(ctx, func(_ context.Context, id string) error {
		handle, err := dbos.RunWorkflow(runtime, a.run, agent.Ask(), dbos.WithWorkflowID(id))
		if err != nil {
			return err
		}
		count, err := handle.GetResult()
		if want := 2 * agent.Steps; err == nil && count != want {
			err = fmt.Errorf("%s has %d messages, want %d", id, count, want)
		}
		return err
	})
}

// workflows implements the agent as a workflow.
type workflows struct{ stream, oneRecord bool }

// turn holds the messages added by a step.
type turn struct {
	Answer agent.Message
	Result *agent.Message // nil without a call
}

// run returns the number of messages. DBOS stores them as the results of its steps.
func (a workflows) run(ctx dbos.Context, ask agent.Message) (int, error) {
	messages := []agent.Message{ask}
	for step := 1; step <= agent.Steps; step++ {
		t, err := a.step(ctx, step)
		if err != nil {
			return 0, err
		}
		messages = append(messages, t.Answer)
		if t.Result != nil {
			messages = append(messages, *t.Result)
		}
		if a.stream {
			if err := dbos.WriteStream(ctx, "chunks", agent.Chunks(step, t.Answer, t.Result)); err != nil {
				return 0, err
			}
		}
	}
	return len(messages), nil
}

func (a workflows) step(ctx dbos.Context, step int) (turn, error) {
	if a.oneRecord {
		return dbos.RunAsStep(ctx, func(context.Context) (turn, error) {
			t := turn{Answer: agent.Model(step)}
			var err error
			t.Result, err = tool(step, t.Answer)
			return t, err
		}, dbos.WithStepName("step"))
	}
	answer, err := dbos.RunAsStep(
		ctx,
		func(context.Context) (agent.Message, error) { return agent.Model(step), nil },
		dbos.WithStepName("model"),
	)
	if err != nil || answer.Call == nil {
		return turn{Answer: answer}, err
	}
	result, err := dbos.RunAsStep(ctx, func(context.Context) (*agent.Message, error) { return tool(step, answer) }, dbos.WithStepName("tool"))
	return turn{answer, result}, err
}

// tool returns the result of an answer's call, or nil without a call.
func tool(step int, answer agent.Message) (*agent.Message, error) {
	if answer.Call == nil {
		return nil, nil
	}
	result, err := agent.Tool(step, *answer.Call)
	return &result, err
}
