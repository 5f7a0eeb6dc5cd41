// Command worker is the agent as a workflow of Temporal; model and tool are activities.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"os"
	"time"

	"go.temporal.io/sdk/client"
	temporallog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-run/holdfast/bench/internal/agent"
)

const activityTimeout = time.Minute

func main() {
	server := flag.String("server", client.DefaultHostPort, "the address of the server")
	flag.Parse()
	if err := run(*server); err != nil {
		log.Fatal(err)
	}
}

func run(server string) error {
	logs := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	c, err := client.Dial(client.Options{HostPort: server, Logger: temporallog.NewStructuredLogger(logs)})
	if err != nil {
		return err
	}
	defer c.Close()
	w := worker.New(c, "agents", worker.Options{})
	w.RegisterWorkflow(Run)
	w.RegisterActivity(Model)
	w.RegisterActivity(Tool)
	return w.Run(worker.InterruptCh())
}

// Run is the workflow. It returns the number of messages. Temporal stores them as activity results in its
// history.
func Run(ctx workflow.Context, ask agent.Message) (int, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: activityTimeout})
	messages := []agent.Message{ask}
	for step := 1; step <= agent.Steps; step++ {
		var answer agent.Message
		if err := workflow.ExecuteActivity(ctx, Model, step).Get(ctx, &answer); err != nil {
			return 0, err
		}
		messages = append(messages, answer)
		if answer.Call == nil {
			continue
		}
		var result agent.Message
		if err := workflow.ExecuteActivity(ctx, Tool, step, *answer.Call).Get(ctx, &result); err != nil {
			return 0, err
		}
		messages = append(messages, result)
	}
	return len(messages), nil
}

// Model is the activity that calls the model.
func Model(_ context.Context, step int) (agent.Message, error) { return agent.Model(step), nil }

// Tool is the activity that runs a call.
func Tool(_ context.Context, step int, call agent.Call) (agent.Message, error) {
	return agent.Tool(step, call)
}
