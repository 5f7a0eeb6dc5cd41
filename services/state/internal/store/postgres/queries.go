package postgres

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// joinRow joins the row of a table with the key of v and a value in one column. The
// condition is a range in the order of the column. Since sorting is off, its only
// plan is the index over the key and the column, whatever the statistics say. For an
// equation, the planner might filter all rows of the session while the table is small.
func joinRow(alias, table, column, value string) string {
	return fmt.Sprintf(` CROSS JOIN LATERAL (SELECT * FROM %[2]s WHERE tenant = v.tenant AND session_id = v.session_id
		AND %[3]s >= %[4]s AND %[3]s <= %[4]s ORDER BY %[3]s LIMIT 1) %[1]s`, alias, table, column, value)
}

// joinAll joins the rows of a table with the key of v and a condition. OFFSET 0 keeps
// the planner from starting with the table, the cheapest plan while it is nearly empty.
func joinAll(alias, table, condition string) string {
	return fmt.Sprintf(` CROSS JOIN LATERAL (SELECT * FROM %s WHERE tenant = v.tenant
		AND session_id = v.session_id%s OFFSET 0) %s`, table, condition, alias)
}

// stepBefore is session.Session.StepBefore of the session s and its newest run r.
var stepBefore = fmt.Sprintf(`(CASE WHEN r.start_position = 0 AND r.turn > 1 THEN s.step_count - r.step_count
	WHEN r.start_position / %[2]d %% %[3]d = %[4]d THEN r.start_position / %[1]d ELSE greatest(r.start_position / %[1]d - 1, 0) END)`,
	position.Start(1), position.Position{Attempt: 1}.Sequence(), position.Stored+1, position.Stored)

// notAfterStep is a condition on the step of a call. Its form keeps it from using an
// index: many calls meet it, and few meet the other conditions.
func notAfterStep(step, last string) string { return step + " - (" + last + ") <= 0" }

// selectRow is joinRow for a query with the key and the value as parameters.
func selectRow(table, column, kind string) string {
	return fmt.Sprintf(`(SELECT * FROM %[1]s WHERE tenant = $1::text AND session_id = $2::text
		AND %[2]s >= $3::%[3]s AND %[2]s <= $3 ORDER BY %[2]s LIMIT 1)`, table, column, kind)
}

// joinWaiting joins the waiting runs in the order of the queue. limit is a LIMIT
// clause, or empty.
func joinWaiting(limit string) string {
	return ` CROSS JOIN LATERAL (SELECT * FROM runs WHERE tenant = v.tenant AND session_id = v.session_id AND status = 'waiting'
		ORDER BY place` + limit + `) r`
}

// joinStates joins the rows of the custom state of owner, in order.
func joinStates(owner string) string {
	return fmt.Sprintf(` CROSS JOIN LATERAL (SELECT version, base_version IN (0, version) AS whole, state FROM states
		WHERE tenant = %[1]s.tenant AND session_id = %[1]s.session_id AND version >= %[1]s.state_base AND version <= %[1]s.state_version
		ORDER BY version) st`, owner)
}

// The columns of queries without some of a table.
var (
	sessionListed  = sessionColumns.Without("output")
	runListed      = runColumns.Without("output")
	messageRead    = messageColumns.Without("size")
	checkpointRead = checkpointColumns.Without("record")
	resultRead     = resultColumns.Without("position")
)

// Each query reads one kind of rows for all sessions with a need for it. The first column
// is the number of the session in the input. The rows of a session are in the order
// of its view.
var (
	// written and locked are from before this lock. The third is the id of this transaction.
	lockSessions = forViews(`s.written, s.locked, pg_current_xact_id()::xid, `+sessionColumns.Select("s"), keyed(""), `
		CROSS JOIN LATERAL (SELECT xmin AS written, xmax AS locked, * FROM sessions
			WHERE tenant = v.tenant AND session_id = v.session_id FOR UPDATE) s
		ORDER BY v.n`)

	readRuns  = forViews(runColumns.Select("r"), keyed("run_id text"), joinRow("r", "runs", "run_id", "v.run_id"))
	readKeyed = forViews(runColumns.Select("r"), keyed("request_key text"),
		joinRow("r", "(SELECT * FROM runs WHERE request_key <> '') keyed", "request_key", "v.request_key"))
	readCurrent = forViews(runColumns.Select("r"), keyed(""),
		joinAll("s", "sessions", "")+joinRow("r", "runs", "run_id", "s.current_run_id"))
	readLive = forViews(runColumns.Select("r"), keyed(""),
		joinAll("r", "runs", " AND status IN ('queued', 'running')"))
	readStates = forViews(`st.whole, st.state`, keyed("always boolean"), joinAll("s", "sessions", "")+joinStates("s")+`
		WHERE v.always OR EXISTS (SELECT 1 FROM results r WHERE r.tenant = v.tenant AND r.session_id = v.session_id AND r.ops <> '')
		ORDER BY v.n, st.version`)
	readPlans   = forViews(planColumns.Select("p"), keyed(""), joinAll("p", "plans", ""))
	readResults = forViews(resultRead.Select("r"), keyed(""), joinAll("r", "results", "")+`
		ORDER BY v.n, r.position`)

	checkpointNamed = `
		CROSS JOIN LATERAL (SELECT * FROM checkpoints WHERE tenant = v.tenant AND session_id = v.session_id
			AND step >= v.first AND step <= v.last AND checkpoint_id = v.checkpoint_id ORDER BY step LIMIT 1) c`
	readCheckpoints      = forViews(checkpointRead.Select("c"), keyed("checkpoint_id text, first bigint, last bigint"), checkpointNamed)
	readCheckpointStates = forViews(
		`st.whole, st.state`,
		keyed("checkpoint_id text, first bigint, last bigint"),
		checkpointNamed+joinStates("c")+` ORDER BY v.n, st.version`,
	)
	readBelowMessages = forViews(checkpointRead.Select("c"), keyed("messages bigint"), `
		CROSS JOIN LATERAL (SELECT * FROM checkpoints WHERE tenant = v.tenant AND session_id = v.session_id
			AND message_count < v.messages ORDER BY step DESC LIMIT 1) c`)
	readAtStep = forViews(checkpointRead.Select("c"), keyed("step bigint"), joinRow("c", "checkpoints", "step", "v.step"))

	readExisting = forViews(`m.message_id, m.ordinal`, keyed("message_id text"), joinRow("m", "messages", "message_id", "v.message_id"))
	readTails    = forViews(messageRead.Select("m"), keyed("most bigint, bytes bigint"), `
		CROSS JOIN LATERAL (
			SELECT *, sum(size) OVER (ORDER BY ordinal DESC) AS total, row_number() OVER (ORDER BY ordinal DESC) AS place FROM
				(SELECT * FROM messages WHERE tenant = v.tenant AND session_id = v.session_id ORDER BY ordinal DESC LIMIT v.most) newest) m
		WHERE m.total <= v.bytes OR m.place = 1
		ORDER BY v.n, m.ordinal`)

	readCalls = forViews(callColumns.Select("c"), keyed(""),
		joinAll("c", "calls", " AND (consumed_at = 0 OR (late_at > 0 AND NOT told))")+`
		ORDER BY v.n, c.created_at, c.call_id`)
	readNamed = forViews(callColumns.Select("c"), keyed("call_id text"), joinAll("s", "sessions", "")+`
		CROSS JOIN LATERAL (SELECT * FROM calls WHERE tenant = v.tenant AND root_id = s.root_id
			AND call_id >= v.call_id AND call_id <= v.call_id ORDER BY call_id LIMIT 1) c
		ORDER BY c.call_id`)
	readLiveBelow = forViews(`b.live`, keyed("most bigint"), joinAll("s", "sessions", "")+`
		CROSS JOIN LATERAL (SELECT count(*) AS live FROM (SELECT 1 FROM sessions WHERE tenant = v.tenant AND root_id = s.root_id
			AND parent_id <> '' AND status NOT IN ('completed', 'failed') LIMIT v.most) below) b`)
	readChildren = forViews(childColumns.Select("c"), keyed(""), joinAll("c", "sub_sessions", "")+`
		ORDER BY v.n, c.child_id`)

	readStored = forViews(`c.name, c.rows`, keyed(""), func() string {
		var counts []string
		for _, name := range table.Counted() {
			counts = append(counts, fmt.Sprintf("SELECT '%[1]s', count(*) FROM %[1]s WHERE tenant = v.tenant AND session_id = v.session_id", name))
		}
		return " CROSS JOIN LATERAL (" + strings.Join(counts, " UNION ALL ") + ") c (name, rows)"
	}())

	readStoredKeys = forViews(fmt.Sprintf(`e.key, octet_length(e.key) + octet_length(e.value)::bigint,
		CASE WHEN octet_length(e.value) <= %d THEN e.value ELSE '' END`, session.MaxStoreNumber), keyed("key text"),
		joinRow("e", "store_entries", "key", "v.key"))

	readWaiting = forViews(
		`h.message_ids, `+runColumns.Select("r"),
		keyed(""),
		joinWaiting("")+joinRow("h", "held_runs", "run_id", "r.run_id")+`
		ORDER BY v.n, r.place`,
	)
	readWaitingInput = forViews(`h.held`, keyed(""), joinWaiting(" LIMIT 1")+joinRow("h", "held_runs", "run_id", "r.run_id"))
	readOwnAgents    = forViews(foundAgentColumns, keyed(""), joinAll("o", "sessions", "")+foundAgent("o.agent_type"))
	readDefinitions  = forViews(`d.definition`, keyed(""), joinAll("s", "sessions", "")+`
		CROSS JOIN LATERAL (SELECT definition FROM stored_agents WHERE tenant = v.tenant AND agent_type = s.agent_type OFFSET 0) d`)

	// What remains when the newest run is undone.
	newest   = joinAll("s", "sessions", "") + joinRow("r", "runs", "run_id", "s.current_run_id")
	readKept = forViews(messageRead.Select("m"), keyed(""), newest+`
		CROSS JOIN LATERAL (SELECT * FROM messages WHERE tenant = v.tenant AND session_id = v.session_id AND ordinal >= r.start_message_count
			ORDER BY ordinal) m
		WHERE m.run_id <> r.run_id OR (m.role = 'user' AND m.step = 0) OR (m.role = 'tool' AND EXISTS (SELECT 1 FROM calls c
			WHERE c.tenant = v.tenant AND c.session_id = v.session_id AND c.consumed_at > 0 AND c.consumed_step = m.step
				AND `+notAfterStep("c.step", stepBefore)+`))
		ORDER BY v.n, m.ordinal`)
	readReportedLate = forViews(callColumns.Select("c"), keyed(""), newest+
		joinAll("c", "calls", " AND told_step > 0 AND told_step > "+stepBefore)+`
		ORDER BY v.n, c.call_id`)
	readFormer = forViews(checkpointRead.Select("c"), keyed(""), newest+`
		CROSS JOIN LATERAL (SELECT * FROM checkpoints WHERE tenant = v.tenant AND session_id = v.session_id
			AND step <= `+stepBefore+` ORDER BY step DESC LIMIT 1) c`)
	readStartStates = forViews(`st.whole, st.state`, keyed(""), newest+`
		CROSS JOIN LATERAL (SELECT r.tenant, r.session_id, r.start_state_version AS state_version, r.start_state_base AS state_base) o`+joinStates("o")+`
		ORDER BY v.n, st.version`)

	// The rows around the target of a rewind.
	backTo     = joinRow("m", "messages", "message_id", "v.message_id")
	lastBefore = ` CROSS JOIN LATERAL (SELECT coalesce((SELECT step FROM messages WHERE tenant = v.tenant AND session_id = v.session_id
		AND ordinal < m.ordinal AND step > 0 ORDER BY ordinal DESC LIMIT 1), 0) AS step) b`
	stateBefore = ` CROSS JOIN LATERAL (SELECT coalesce((SELECT nullif(start_state_version, 0) FROM runs
		WHERE tenant = v.tenant AND session_id = v.session_id
		AND run_id >= m.run_id AND run_id <= m.run_id), 9223372036854775807) AS version) sv`
	checkpointBefore = stateBefore + ` CROSS JOIN LATERAL (SELECT * FROM checkpoints WHERE tenant = v.tenant AND session_id = v.session_id
		AND message_count <= m.ordinal AND state_version <= sv.version ORDER BY step DESC LIMIT 1) c`
	readBack           = forViews(`b.step, `+messageRead.Select("m"), keyed("message_id text"), backTo+lastBefore)
	readBackRun        = forViews(runColumns.Select("r"), keyed("message_id text"), backTo+joinRow("r", "runs", "run_id", "m.run_id"))
	readBackCheckpoint = forViews(checkpointRead.Select("c"), keyed("message_id text"), backTo+checkpointBefore)
	readBackStates     = forViews(`st.whole, st.state`, keyed("message_id text"), backTo+`
		CROSS JOIN LATERAL (
			SELECT tenant, session_id, start_state_version AS state_version, start_state_base AS state_base, 1 AS place FROM runs
				WHERE tenant = v.tenant AND session_id = v.session_id AND run_id >= m.run_id AND run_id <= m.run_id AND start_state_version > 0
			UNION ALL
			SELECT * FROM (SELECT tenant, session_id, state_version, state_base, 2 FROM checkpoints
				WHERE tenant = v.tenant AND session_id = v.session_id
				AND message_count <= m.ordinal ORDER BY step DESC LIMIT 1) c
			ORDER BY place LIMIT 1) o`+joinStates("o")+`
		ORDER BY v.n, st.version`)
	readBackResults = forViews(messageRead.Select("a"), keyed("message_id text"), backTo+lastBefore+`
		CROSS JOIN LATERAL (SELECT * FROM messages WHERE tenant = v.tenant AND session_id = v.session_id AND ordinal > m.ordinal
			AND role = 'tool' ORDER BY ordinal) a
		CROSS JOIN LATERAL (SELECT 1 FROM calls WHERE tenant = v.tenant AND session_id = v.session_id AND consumed_at > 0
			AND consumed_step >= a.step AND consumed_step <= a.step AND `+notAfterStep("step", "b.step")+` ORDER BY consumed_step LIMIT 1) taken
		ORDER BY v.n, a.ordinal`)
	readBackReportedLate = forViews(callColumns.Select("c"), keyed("message_id text"), backTo+lastBefore+
		joinAll("c", "calls", " AND told_step > 0 AND told_step > b.step AND "+notAfterStep("step", "b.step"))+`
		ORDER BY v.n, c.call_id`)

	// The newest run of an assistant's message, and the messages before it.
	answered = `
		CROSS JOIN LATERAL (SELECT * FROM runs WHERE tenant = v.tenant AND session_id = v.session_id AND turn > 0
			AND message_id = v.message_id ORDER BY turn DESC LIMIT 1) r`
	firstWritten = ` CROSS JOIN LATERAL (SELECT coalesce((SELECT ordinal FROM messages WHERE tenant = v.tenant AND session_id = v.session_id
		AND ordinal >= r.start_message_count AND (run_id <> r.run_id OR step > 0) ORDER BY ordinal LIMIT 1), 9223372036854775807) AS ordinal) w`
	readAnswer = forViews(`coalesce((SELECT run_id = r.run_id FROM messages WHERE tenant = v.tenant AND session_id = v.session_id
		AND ordinal >= r.start_message_count AND ordinal <= r.start_message_count
			ORDER BY ordinal LIMIT 1), true), `+runColumns.Select("r"), keyed("message_id text"), answered)
	readQuestions = forViews(messageRead.Select("m"), keyed("message_id text"), answered+firstWritten+fmt.Sprintf(`
		CROSS JOIN LATERAL (SELECT * FROM messages WHERE tenant = v.tenant AND session_id = v.session_id AND ordinal < w.ordinal
			AND role = 'user' AND step = 0 ORDER BY ordinal DESC LIMIT %d) m
		ORDER BY v.n, m.ordinal DESC`, session.MaxQuestions))

	readAsked = forViews(`r.started_by, `+messageRead.Select("m"), keyed("ordinal bigint"), fmt.Sprintf(`
		CROSS JOIN LATERAL (SELECT * FROM messages WHERE tenant = v.tenant AND session_id = v.session_id AND ordinal >= v.ordinal
			AND role = 'user' AND step = 0 AND run_id <> '' ORDER BY ordinal LIMIT %d) m`, session.MaxQuestions)+joinRow("r", "runs", "run_id", "m.run_id")+`
		ORDER BY v.n, m.ordinal`)

	// The checkpoint for a retry of the newest run.
	failedCheckpoint = newest + `
		CROSS JOIN LATERAL (SELECT * FROM checkpoints WHERE tenant = v.tenant AND session_id = v.session_id
			AND step > ` + stepBefore + ` AND run_id = r.run_id AND status <> 'failed' ORDER BY step DESC LIMIT 1) c`
	readFailedCheckpoint = forViews(checkpointRead.Select("c"), keyed(""), failedCheckpoint)
	readFailedStates     = forViews(`st.whole, st.state`, keyed(""), failedCheckpoint+joinStates("c")+` ORDER BY v.n, st.version`)
	readLastStep         = forViews(messageRead.Select("m"), keyed(""), newest+`
		CROSS JOIN LATERAL (SELECT * FROM messages WHERE tenant = v.tenant AND session_id = v.session_id AND ordinal >= r.start_message_count
			ORDER BY ordinal) m
		WHERE r.finish_step > 0 AND m.run_id = r.run_id AND m.step = r.finish_step
		ORDER BY v.n, m.ordinal`)

	readAgents    = forViews(foundAgentColumns, keyed("agent_type text"), foundAgent("v.agent_type"))
	readExecutors = forViews(`e.executor_id`, keyed("executor_id text"), ` CROSS JOIN LATERAL (SELECT * FROM executors
		WHERE executor_id = v.executor_id OFFSET 0) e`)
	readSilent = forViews(`r.run_id`, keyed("run_id text"), joinRow("r", "runs", "run_id", "v.run_id")+`
		WHERE NOT EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = r.executor_id)`)
)
