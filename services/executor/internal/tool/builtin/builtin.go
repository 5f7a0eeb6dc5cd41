// Package builtin provides the tools that agents in YAML may name.
package builtin

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// maxPause limits every pause requested by a call.
const maxPause = 60 * time.Second

// Config configures the tools.
type Config struct {
	Now func() time.Time
	// NotesDir is the folder of note and note_once. Without it these tools do not exist.
	NotesDir string
}

// Tools returns the built-in tools by name.
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

func currentTime(now func() time.Time) agent.Tool {
	type input struct {
		Timezone string `json:"timezone,omitempty" jsonschema:"IANA time zone, for example Europe/Paris; UTC when left out"`
	}
	type output struct {
		Time     string `json:"time"`
		Weekday  string `json:"weekday"`
		Timezone string `json:"timezone"`
	}
	return agent.NewTool("current_time", "Tells the current date and time.", func(_ context.Context, _ *agent.Call, in input) (output, error) {
		zone, err := time.LoadLocation(in.Timezone)
		if err != nil || in.Timezone == "Local" {
			return output{}, fmt.Errorf("%q is not a time zone; use an IANA name such as Europe/Paris", in.Timezone)
		}
		t := now().In(zone)
		return output{Time: t.Format(time.RFC3339), Weekday: t.Weekday().String(), Timezone: zone.String()}, nil
	}, agent.ReadOnly())
}

func wait() agent.Tool {
	type input struct {
		Milliseconds int64 `json:"ms" jsonschema:"how long to wait, in milliseconds"`
	}
	type output struct {
		Waited int64 `json:"waitedMs"`
	}
	wait := func(ctx context.Context, _ *agent.Call, in input) (output, error) {
		return output{in.Milliseconds}, pause(ctx, in.Milliseconds)
	}
	return agent.NewTool("wait", "Waits for a number of milliseconds, 60000 at most.", wait,
		agent.Safe(), agent.Timeout(maxPause+5*time.Second))
}

// pause waits for this number of milliseconds.
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
