// Package builtin has the tools that agents in YAML may name.
package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// maxPause bounds every pause that a call may ask for.
const maxPause = 60 * time.Second

// Config says what the tools work with.
type Config struct {
	Now func() time.Time
	// NotesDir is where note and note_once write. Without it they do not exist.
	NotesDir string
}

// Tools gives the built-in tools by name.
func Tools(c Config) map[string]agent.Tool {
	list := []agent.Tool{currentTime(c.Now), calculate(), wait()}
	if c.NotesDir != "" {
		notes := &notebook{dir: c.NotesDir}
		list = append(list, notes.note(), notes.noteOnce())
	}
	tools := make(map[string]agent.Tool, len(list))
	for _, t := range list {
		tools[t.Name] = t
	}
	return tools
}

// define makes a tool with a typed input.
func define[In any](t agent.Tool, schema string, run func(ctx context.Context, call agent.Call, in In) (any, error)) agent.Tool {
	t.InputSchema = json.RawMessage(schema)
	t.Execute = func(ctx context.Context, call agent.Call) (any, error) {
		var in In
		if err := json.Unmarshal(call.Input, &in); err != nil {
			return nil, fmt.Errorf("the arguments cannot be read: %w", err)
		}
		return run(ctx, call, in)
	}
	return t
}

func currentTime(now func() time.Time) agent.Tool {
	type input struct {
		Timezone string `json:"timezone"`
	}
	return define(agent.Tool{
		Name:        "current_time",
		Description: "Tells the current date and time.",
		Retry:       agent.RetrySafe,
	}, `{
		"type": "object",
		"properties": {"timezone": {"type": "string", "description": "IANA time zone, for example Europe/Paris; UTC when left out"}},
		"additionalProperties": false
	}`, func(_ context.Context, _ agent.Call, in input) (any, error) {
		zone, err := time.LoadLocation(in.Timezone)
		if err != nil || in.Timezone == "Local" {
			return nil, fmt.Errorf("%q is no time zone; use an IANA name such as Europe/Paris", in.Timezone)
		}
		t := now().In(zone)
		return map[string]string{"time": t.Format(time.RFC3339), "weekday": t.Weekday().String(), "timezone": zone.String()}, nil
	})
}

func wait() agent.Tool {
	type input struct {
		Milliseconds int64 `json:"ms"`
	}
	return define(agent.Tool{
		Name:        "wait",
		Description: "Waits for a number of milliseconds, 60000 at most.",
		Retry:       agent.RetrySafe,
		Timeout:     maxPause + 5*time.Second,
	}, `{
		"type": "object",
		"properties": {"ms": {"type": "integer", "description": "how long to wait, in milliseconds"}},
		"required": ["ms"],
		"additionalProperties": false
	}`, func(ctx context.Context, _ agent.Call, in input) (any, error) {
		if err := pause(ctx, in.Milliseconds); err != nil {
			return nil, err
		}
		return map[string]int64{"waitedMs": in.Milliseconds}, nil
	})
}

// pause lets milliseconds pass.
func pause(ctx context.Context, milliseconds int64) error {
	if milliseconds < 0 || milliseconds > maxPause.Milliseconds() {
		return fmt.Errorf("%d is not between 0 and %d milliseconds", milliseconds, maxPause.Milliseconds())
	}
	timer := time.NewTimer(time.Duration(milliseconds) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
