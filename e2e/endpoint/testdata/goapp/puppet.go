package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// op is one thing that a puppet does. Op says which of the other fields it has.
type op struct {
	Op        string          `json:"op"`
	Name      string          `json:"name,omitempty"`
	Key       string          `json:"key,omitempty"`
	ID        *string         `json:"id,omitempty"`
	Transient bool            `json:"transient,omitempty"`
	Value     json.RawMessage `json:"value,omitempty"`
	Kind      string          `json:"kind,omitempty"`
	Amount    float64         `json:"amount,omitempty"`
	Text      string          `json:"text,omitempty"`
	Public    string          `json:"public,omitempty"`
	Code      string          `json:"code,omitempty"`
	Count     int             `json:"count,omitempty"`
}

// program is the input of a puppet.
type program struct {
	Do []op `json:"do"`
	// Amount is for the rule of act_ruled.
	Amount float64 `json:"amount,omitempty"`
}

// programSchema is the schema of a program in all languages.
var programSchema = json.RawMessage(`{
	"type": "object",
	"properties": {"do": {"type": "array", "items": {"type": "object"}}, "amount": {"type": "number"}},
	"required": ["do"],
	"additionalProperties": false
}`)

// act runs the program of a call.
func (o outside) act(ctx context.Context, call *agent.Call) (any, error) {
	var p program
	if err := json.Unmarshal(call.Input, &p); err != nil {
		return nil, err
	}
	for _, op := range p.Do {
		switch op.Op {
		case "return":
			return op.Value, nil
		case "size":
			return strings.Repeat("x", op.Count), nil
		case "nothing":
			return nil, nil
		case "nojson":
			return func() {}, nil
		case "context":
			return describeCall(ctx, call), nil
		case "state":
			return call.State(), nil
		case "stored":
			entries := map[string]json.RawMessage{}
			for e, err := range call.Store().List(ctx, agent.StoreRange{Prefix: op.Key}) {
				if err != nil {
					return nil, err
				}
				entries[e.Key] = e.Value
			}
			return entries, nil
		case "fail":
			if op.Public != "" {
				return nil, agent.PublicError(errors.New(op.Text), op.Public)
			}
			return nil, errors.New(op.Text)
		case "crash":
			panic(op.Text)
		case "aborted": // waits for the cancellation, and reports it
			<-ctx.Done()
			return nil, errors.Join(ctx.Err(), o.post(context.WithoutCancel(ctx), call.IdempotencyKey, op.Text))
		}
		if err := o.step(ctx, call, op); err != nil {
			return nil, err
		}
	}
	return "done", nil
}

// step does an op that does not end the call.
func (o outside) step(ctx context.Context, call *agent.Call, op op) error {
	switch op.Op {
	case "emit":
		var options []agent.EmitOption
		if op.ID != nil {
			options = append(options, agent.WithID(*op.ID))
		}
		if op.Transient {
			options = append(options, agent.Transient())
		}
		for range max(op.Count, 1) {
			if err := call.Emit(ctx, op.Name, op.Value, options...); err != nil {
				return err
			}
		}
		return nil
	case "emitsize":
		return call.Emit(ctx, op.Name, strings.Repeat("x", op.Count))
	case "metadata":
		return call.SetMetadata(ctx, op.Value)
	case "set", "append", "delete":
		return call.Update(func(draft agent.State) error { return op.write(draft) })
	case "setsize":
		return call.Update(func(draft agent.State) error { draft[op.Key] = strings.Repeat("x", op.Count); return nil })
	case "put":
		return call.Store().Put(op.Key, op.Value)
	case "addto":
		return call.Store().Add(op.Key, int64(op.Count))
	case "drop":
		return call.Store().Delete(op.Key)
	case "usage":
		call.RecordUsage(op.Kind, op.Name, op.Amount)
		return nil
	case "post":
		return o.post(ctx, call.IdempotencyKey, op.Text)
	case "gate":
		return o.gate(ctx, op.Text)
	case "late": // does not notice the end of the call
		return errors.Join(o.gate(context.WithoutCancel(ctx), op.Text), o.post(context.WithoutCancel(ctx), call.IdempotencyKey, op.Name))
	}
	return fmt.Errorf("the puppet knows no op %q", op.Op)
}

// write writes to the custom state.
func (op op) write(draft agent.State) error {
	if op.Op == "delete" {
		delete(draft, op.Key)
		return nil
	}
	var value any
	if err := json.Unmarshal(op.Value, &value); err != nil {
		return err
	}
	if op.Op == "append" {
		list, _ := draft[op.Key].([]any)
		items, _ := value.([]any)
		value = append(append([]any{}, list...), items...)
	}
	draft[op.Key] = value
	return nil
}

// describeCall describes the trusted context of a call in the form that all languages use.
func describeCall(ctx context.Context, call *agent.Call) any {
	deadline, _ := ctx.Deadline()
	return map[string]any{
		"tenant": call.Tenant, "user": orNull(call.UserID), "session": call.SessionID, "parent": orNull(call.ParentSessionID),
		"tags": orEmpty(call.Tags), "metadata": orNone(call.Metadata), "run": call.RunID, "turn": call.Turn, "step": call.Step,
		"call": call.ID, "key": call.IdempotencyKey, "deadline": deadline.UTC().Format(time.RFC3339Nano), "agent": call.AgentType,
	}
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func orEmpty(list []string) []string { return append([]string{}, list...) }

func orNone(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// outside is the world of the suite: a ledger of effects, and gates that it opens.
type outside struct{ url string }

// post has an effect in the ledger.
func (o outside) post(ctx context.Context, key, label string) error {
	return o.call(ctx, "/post", map[string]string{"key": key, "label": label})
}

// gate waits until the suite opens the gate.
func (o outside) gate(ctx context.Context, name string) error {
	return o.call(ctx, "/gate", map[string]string{"name": name})
}

func (o outside) call(ctx context.Context, path string, body map[string]string) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	if err := answer.Body.Close(); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", path, answer.Status)
	}
	return nil
}
