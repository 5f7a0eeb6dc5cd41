package main

import (
	"github.com/holdfast-run/holdfast/bench/dbos"
	"github.com/holdfast-run/holdfast/bench/floor"
	"github.com/holdfast-run/holdfast/bench/holdfast"
	"github.com/holdfast-run/holdfast/bench/internal/peer"
	"github.com/holdfast-run/holdfast/bench/langgraph"
	"github.com/holdfast-run/holdfast/bench/restate"
	"github.com/holdfast-run/holdfast/bench/temporal"
)

// contender is a row of the table.
type contender struct {
	name    string
	promise string // guarantees for the users of the runtime
	make    func() peer.Peer
}

const holdfastPromise = "Every step is committed to Postgres, synced to disk, before the next one begins: messages in tables, state, usage. " +
	"Writers are fenced by epoch in the database and in the log. All 5 chunks of a step go through JetStream (synced every 5 s) and can be " +
	"replayed from any position, live or after the step."

const holdfastOneRecord = "The tool is declared read-only, so model and tool are one record: a crash between the two repeats the model call. "

const dbosPromise = "Each record is a transaction on Postgres, synced to disk, that checks the owner of the workflow. " +
	"Messages are results of steps as JSON, in no table of their own. "

const restatePromise = "The result of each is in the journal before the next one begins: the log of a single node, " +
	"synced to disk (RocksDB with its WAL, default settings; no Postgres). One writer at a time for each key. " +
	"Messages are entries of the journal, in no table of their own. No chunks."

// contenders returns all rows in the order of the table.
func contenders() []contender {
	return []contender{
		{"holdfast", "Four processes on TCP. The model's answer is recorded before the tool runs, the result with the step. " + holdfastPromise,
			holdfast.FourProcessesRecorded},
		{"holdfast-one-record", "Four processes on TCP. " + holdfastOneRecord + holdfastPromise, holdfast.FourProcesses},
		{"holdfast-dev-one-record", "`holdfast dev`, one process, on Postgres. " + holdfastOneRecord + holdfastPromise, holdfast.OneProcess},
		{
			"floor",
			"No runtime: 2 fenced transactions on Postgres, synced to disk, and 5 publishes on an embedded JetStream a step, in one process. " +
				"Nothing recovers a run, and nobody can read one.",
			floor.New,
		},
		{"dbos-stream", "Model and tool are steps of DBOS, and the 5 chunks of a step are one write to a stream. " + dbosPromise +
			"Chunks are replayable step by step.", dbos.New(dbos.Options{Stream: true})},
		{"dbos", "The same without a stream. " + dbosPromise + "No chunks.", dbos.New(dbos.Options{})},
		{
			"dbos-one-record-stream",
			"Model and tool are one step of DBOS: a crash between the two repeats the model call. One write to a stream. " + dbosPromise +
				"Chunks are replayable step by step.",
			dbos.New(dbos.Options{OneRecord: true, Stream: true}),
		},
		{"dbos-one-record", "The same without a stream. " + dbosPromise + "No chunks.", dbos.New(dbos.Options{OneRecord: true})},
		{"restate", "Model and tool are steps (Run) of a virtual object. " + restatePromise, restate.New(restate.Options{})},
		{"restate-one-record", "Model and tool are one step: a crash between the two repeats the model call. " + restatePromise,
			restate.New(restate.Options{OneRecord: true})},
		{
			"langgraph",
			"A graph of two nodes, model and tools, with PostgresSaver and durability \"sync\": the whole conversation is a checkpoint in Postgres, " +
				"synced to disk, before each node. No fencing: two workers may go on with one thread. The 5 chunks of a step reach the reader in the process " +
				"and are not kept.",
			langgraph.New,
		},
		{
			"temporal",
			"The dev server, one process on a SQLite file with synchronous=full (no Postgres; production runs four services on a larger database). " +
				"Model and tool are activities, and each is in the history before the next one begins. Fenced by the history. No chunks.",
			temporal.New,
		},
	}
}
