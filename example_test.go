package holdfast_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/services/executor"
)

// A program is the whole system, until Ctrl-C.
func ExampleRun() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := holdfast.Run(ctx, holdfast.Options{
		Agents: []agent.Agent{{Name: "helper", Model: "anthropic/claude-sonnet-4-5", SystemPrompt: "You help."}},
		Data:   "data",
		Env:    os.Environ(), // has ANTHROPIC_API_KEY
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A program asks its agent without a port and without a key. The model of this one follows a script.
func ExampleRuntime_Client() {
	model, err := executor.OpenModel(executor.ModelConfig{
		Provider: "scripted", Script: "models: {parrot: {rules: [{reply: 'You said: {{.LastUser}}'}]}}",
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	r, err := holdfast.Start(ctx, holdfast.Options{
		Agents:   []agent.Agent{{Name: "parrot", Model: "scripted/parrot"}},
		Models:   map[string]executor.Model{"scripted": model},
		InMemory: true, Listen: holdfast.NoListen,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	c, err := r.Client(holdfast.Caller{Tenant: "acme", User: "ann"})
	if err != nil {
		log.Fatal(err)
	}
	answer, err := c.Ask(ctx, &agentv1.StartRequest{AgentType: "parrot", Message: "hello"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Text)
	// Output: You said: hello
}

// A server of the program has the gateway below /ai, for the users that it knows by their cookies.
func ExampleRuntime_Handler() {
	r, err := holdfast.Start(context.Background(), holdfast.Options{
		Listen: holdfast.NoListen,
		Authenticate: func(r *http.Request) (*holdfast.Caller, error) {
			cookie, err := r.Cookie("user")
			if err != nil {
				return nil, fault.New(fault.Unauthenticated, "SIGNED_OUT", "sign in again")
			}
			return &holdfast.Caller{Tenant: "acme", User: cookie.Value}, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	http.Handle("/ai/", http.StripPrefix("/ai", r.Handler()))
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil))
}
