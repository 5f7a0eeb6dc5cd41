// Command worker is the agent as a virtual object of Restate, one per session.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"os"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/server"

	"github.com/holdfast-run/holdfast/bench/internal/agent"
)

func main() {
	var a Agent
	listen := flag.String("listen", "127.0.0.1:9080", "the address to serve on")
	flag.BoolVar(&a.oneRecord, "one-record", false, "run model and tool as one step")
	flag.Parse()
	logs := slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})
	if err := server.NewRestate().WithLogger(logs, true).Bind(restate.Reflect(a)).Start(context.Background(), *listen); err != nil {
		log.Fatal(err)
	}
}

// Agent is the virtual object. Its name and its method's name define the service.
type Agent struct{ oneRecord bool }

// turn holds the messages added by a step.
type turn struct {
	Answer agent.Message
	Result *agent.Message // nil without a call
}

// Run returns the number of messages. Restate stores them in its journal.
func (a Agent) Run(ctx restate.ObjectContext, ask agent.Message) (int, error) {
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
	}
	return len(messages), nil
}

func (a Agent) step(ctx restate.ObjectContext, step int) (turn, error) {
	if a.oneRecord {
		return restate.Run(ctx, func(restate.RunContext) (turn, error) {
			t := turn{Answer: agent.Model(step)}
			var err error
			t.Result, err = tool(step, t.Answer)
			return t, err
		}, restate.WithName("step"))
	}
	answer, err := restate.Run(
		ctx,
		func(restate.RunContext) (agent.Message, error) { return agent.Model(step), nil },
		restate.WithName("model"),
	)
	if err != nil || answer.Call == nil {
		return turn{Answer: answer}, err
	}
	result, err := restate.Run(ctx, func(restate.RunContext) (*agent.Message, error) { return tool(step, answer) }, restate.WithName("tool"))
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
