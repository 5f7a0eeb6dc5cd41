// Package loop is the heart of the executor: it decides what a run does next.
//
// A Planner knows the agent, the conversation so far and what the step in
// flight has left behind. One effect at a time comes out of Next; who performs
// it tells the planner how it ended, and the next one comes out:
//
//	            ┌────────────── Waited ── Wait ◀─┐ retryable, budget left
//	            ▼                                │
//	New ──▶ CallModel ── Failed ─────────────────┴──▶ Finish ── Finished ──▶ Done
//	 │          │
//	 │          └─ Replied ─┬─ text ───────────────────────▶ Commit (with outcome)
//	 │                      ├─ no call can run ─▶ RunCalls ─┐     │
//	 │                      └─ calls ─▶ RecordPlan ─▶ RunCalls    │
//	 └─ the journal has a plan ────────────────▶ RunCalls ┴─▶ Commit ── Committed ──▶ CallModel or Done
//
// The order is what makes recovery simple. A plan is recorded before any call
// of it runs, and a result before anybody else learns of it. So a new owner
// that finds a plan asks nothing of the model again: calls with a recorded
// result keep it, calls without one run again with the same idempotency key
// where their tool says that this is safe, and otherwise get a result that says
// that nobody knows.
//
// Nothing here reads a clock, does I/O or starts a goroutine. The same start and
// the same answers give the same effects, message ids and keys.
package loop
