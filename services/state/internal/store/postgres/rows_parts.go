package postgres

import (
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var (
	stateRows   = columns("states", keyColumns, "version bigint, base_version bigint, state text")
	planRows    = columns("plans", keyColumns, planColumns)
	planShown   = columns("plans", planColumns)
	resultRows  = columns("results", keyColumns, "position bigint", resultColumns)
	resultShown = columns("results", resultColumns)
)

const (
	planColumns   = "step bigint, body bytea, call_ids text, usage text, ops text"
	resultColumns = "call_id text, body bytea, ops text, usage text"
)

func (r *rows) plan(k session.Key, p *session.Journal) *rows {
	return r.key(k).number(int64(p.Step)).bytes(p.Plan).json(store.In(&p.CallIDs)).json(store.In(&p.Usage)).json(store.In(&p.Ops))
}

func (r *row) plan() *session.Journal {
	p := &session.Journal{Step: r.small(), Plan: r.bytes()}
	r.json(store.In(&p.CallIDs))
	r.json(store.In(&p.Usage))
	r.json(store.In(&p.Ops))
	return p
}

func (r *rows) result(k session.Key, at int32, x *session.Result) *rows {
	return r.key(k).number(int64(at)).text(x.CallID).bytes(x.Body).json(store.In(&x.Ops)).json(store.In(&x.Usage))
}

func (r *row) result() session.Result {
	x := session.Result{CallID: r.text(), Body: r.bytes()}
	r.json(store.In(&x.Ops))
	r.json(store.In(&x.Usage))
	return x
}

const usageColumns = `run_id text, step bigint, position bigint, recorded_at bigint, kind text, source text, model text, prompt_tokens bigint,
	completion_tokens bigint, reasoning_tokens bigint, cached_tokens bigint, total_tokens bigint, tool text, success boolean, duration_ms bigint,
	type text, name text, value float8`

var (
	usageRows  = columns("usage_entries", keyColumns, usageColumns)
	usageShown = columns("usage_entries", usageColumns)
)

func (r *rows) usage(k session.Key, u *session.UsageEntry) *rows {
	return r.key(k).text(u.RunID).number(int64(u.Step), int64(u.Position), int64(u.At)).text(string(u.Kind), u.Source, u.Model).
		number(u.PromptTokens, u.CompletionTokens, u.ReasoningTokens, u.CachedTokens, u.TotalTokens).
		text(u.Tool).truth(u.Success).number(u.DurationMS).text(u.Type, u.Name).float(u.Value)
}

func (r *row) usage() session.UsageEntry {
	u := session.UsageEntry{RunID: r.text(), Step: r.small(), Position: r.small(), At: session.Millis(r.number())}
	u.Kind, u.Source, u.Model = session.UsageKind(r.text()), r.text(), r.text()
	u.PromptTokens, u.CompletionTokens, u.ReasoningTokens, u.CachedTokens, u.TotalTokens = r.number(), r.number(), r.number(), r.number(), r.number()
	u.Tool, u.Success, u.DurationMS = r.text(), r.truth(), r.number()
	u.Type, u.Name, u.Value = r.text(), r.text(), r.float()
	return u
}

const callColumns = `session_id text, run_id text, step bigint, step_id text, tool_name text, kind text, approval_id text, input text, stash bytea,
	created_at bigint, deadline_at bigint, answer text, revision bigint, response bytea, answered_at bigint, consumed_at bigint, consumed_step bigint, late bytea,
	late_at bigint, told boolean, told_step bigint`

var (
	callRows  = columns("calls", callKey, callColumns)
	callShown = columns("calls", "call_id text", callColumns)
)

const callKey = "tenant text, root_id text, call_id text"

func (r *rows) call(tenant, root string, c *session.Call) {
	r.text(tenant, root, c.CallID, c.SessionID, c.RunID).number(int64(c.Step)).
		text(c.StepID, c.ToolName, string(c.Kind), c.ApprovalID, c.Input).bytes(c.Stash).
		number(int64(c.CreatedAt), int64(c.DeadlineAt)).text(string(c.Answer)).number(int64(c.Revision)).bytes(c.Response).
		number(int64(c.AnsweredAt), int64(c.ConsumedAt), int64(c.ConsumedStep)).bytes(c.Late).number(int64(c.LateAt)).truth(c.Told).number(int64(c.ToldStep))
}

func (r *row) call() session.Call {
	c := session.Call{CallID: r.text(), SessionID: r.text(), RunID: r.text(), Step: r.small()}
	c.StepID, c.ToolName, c.Kind, c.ApprovalID, c.Input = r.text(), r.text(), session.CallKind(r.text()), r.text(), r.text()
	c.Stash, c.CreatedAt, c.DeadlineAt = r.bytes(), session.Millis(r.number()), session.Millis(r.number())
	c.Answer, c.Revision, c.Response = session.AnswerKind(r.text()), r.small(), r.bytes()
	c.AnsweredAt, c.ConsumedAt, c.ConsumedStep = session.Millis(r.number()), session.Millis(r.number()), r.small()
	c.Late, c.LateAt, c.Told, c.ToldStep = r.bytes(), session.Millis(r.number()), r.truth(), r.small()
	return c
}

const childColumns = `child_id text, agent_type text, call_id text, status text, mode text, name text, location text, remote text,
	started_at bigint, completed_at bigint`

var (
	childRows  = columns("sub_sessions", keyColumns, childColumns)
	childShown = columns("sub_sessions", childColumns)
)

func (r *rows) child(k session.Key, c *session.Child) *rows {
	return r.key(k).text(c.SessionID, c.AgentType, c.CallID, string(c.Status), string(c.Mode), c.Name, string(c.Location), c.Remote).
		number(int64(c.StartedAt), int64(c.CompletedAt))
}

func (r *row) child() session.Child {
	return session.Child{
		SessionID: r.text(), AgentType: r.text(), CallID: r.text(), Status: session.Status(r.text()), Mode: session.ChildMode(r.text()),
		Name: r.text(), Location: session.Location(r.text()), Remote: r.text(),
		StartedAt: session.Millis(r.number()), CompletedAt: session.Millis(r.number()),
	}
}

var (
	heldRows = columns("held_runs", keyColumns, "run_id text, message_ids text, held text")
	heldKeys = columns("held_runs", keyColumns, "run_id text")
)

func (r *rows) held(k session.Key, runID string, h *session.Held) {
	ids := h.MessageIDs()
	r.key(k).text(runID).json(store.In(&ids)).json(store.In(h))
}

var facetRows = columns("session_facets", "tenant text, session_id text, facet bytea, created_at bigint")

func (r *rows) facet(s *session.Session, f session.Facet) {
	r.key(s.Key).bytes([]byte(f)).number(int64(s.CreatedAt))
}
