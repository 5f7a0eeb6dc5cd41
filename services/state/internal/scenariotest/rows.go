package scenariotest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// row is a line about one row or list of a session.
type row struct{ name, text string }

// rowsOf describes the rows of a session.
func (s *scene) rowsOf(sessionID string, r *Rows) (rows []row) {
	prefix := ""
	if sessionID != home {
		prefix = sessionID + " "
	}
	add := func(name, text string) {
		if text != "" {
			rows = append(rows, row{prefix + name, text})
		}
	}
	add("session", s.describeSession(&r.Session))
	for i := range r.Runs {
		run := &r.Runs[i]
		text := describeRun(run)
		first := slices.IndexFunc(r.Runs, func(earlier session.Run) bool { return earlier.MessageID == run.MessageID })
		if first < i {
			text += ", continues the message of " + s.name(r.Runs[first].RunID)
		}
		add("run "+s.name(run.RunID), text)
	}
	var waiting, messages, checkpoints []string
	for _, id := range r.Waiting {
		waiting = append(waiting, s.name(id))
	}
	for _, m := range r.Messages {
		text := m.ID
		if m.RunID != "" {
			text += "(" + s.name(m.RunID) + ")"
		}
		messages = append(messages, text)
	}
	for _, c := range r.Checkpoints {
		checkpoints = append(checkpoints, fmt.Sprint(c.Step))
		s.checkpoints[[2]string{sessionID, fmt.Sprint(c.Step)}] = c.ID
	}
	newest := append([]session.Checkpoint{{}}, r.Checkpoints...)
	if id := newest[len(newest)-1].ID; id != r.Session.CheckpointID {
		checkpoints = append(checkpoints, fmt.Sprintf("but the session has %q, not %q", r.Session.CheckpointID, id))
	}
	add("queue", strings.Join(waiting, " "))
	add("messages", strings.Join(messages, " "))
	add("checkpoints", strings.Join(checkpoints, " "))
	for _, c := range r.Calls {
		add("call "+c.CallID, describeCall(c))
	}
	for _, c := range r.Children {
		text := string(c.Status)
		if c.Location == session.Remote {
			text += ", remote"
		}
		add("child "+c.SessionID, text)
	}
	if j := r.Journal; j != nil {
		text := fmt.Sprintf("step %d, calls %s", j.Step, strings.Join(j.CallIDs, " "))
		for i, result := range j.Results {
			if i == 0 {
				text += ", results"
			}
			text += " " + result.CallID
		}
		add("journal", text)
	}
	if r.Usage > 0 {
		add("usage", fmt.Sprint(r.Usage, " entries"))
	}
	return rows
}

func (s *scene) describeSession(of *session.Session) string {
	parts := []string{fmt.Sprintf("%s, version %d", of.Status, of.Version)}
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if of.AgentType != agent {
		add("agent %s", of.AgentType)
	}
	if of.ResumeCount > 0 {
		add("resumed %d times", of.ResumeCount)
	}
	if of.State != "{}" {
		add("state %s", of.State)
	}
	if of.Interruption != nil {
		add("interrupted because of %q", of.Interruption.Reason)
	}
	if f := of.Failure; f != nil {
		add("failed because of %q", cmp.Or(f.Reason, f.Code, f.Error))
	}
	if of.Status.Suspended() != (of.Suspension != nil) {
		add("suspension %+v", of.Suspension)
	}
	if of.ExpiresAt != 0 {
		add("expires at %d", of.ExpiresAt-beginning)
	}
	return strings.Join(parts, ", ")
}

func describeRun(r *session.Run) string {
	text := string(r.Status)
	if r.Status.Live() {
		text = "live"
	}
	if r.Entry != session.EntryStart {
		text = string(r.Entry) + ", " + text
	}
	if r.Turn > 0 {
		text = fmt.Sprintf("turn %d, %s, after message %d", r.Turn, text, r.StartMessageCount)
		if r.TurnMessageCount != r.StartMessageCount {
			text += fmt.Sprintf(", in a turn after message %d", r.TurnMessageCount)
		}
	}
	if r.DeadlineAt > 0 {
		text += fmt.Sprintf(", until %d", r.DeadlineAt-beginning)
	}
	if r.Status.Ended() && r.FinishStep > 0 {
		text += fmt.Sprintf(", ended by step %d", r.FinishStep)
	}
	if f := r.Outcome.Failure; f != nil {
		text += fmt.Sprintf(", failed because of %q", cmp.Or(f.Reason, f.Code, f.Error))
	}
	if stop := r.Stop; stop != nil {
		text += fmt.Sprintf(", %s requested", stop.Kind)
		if stop.Undo {
			text += " with a rollback"
		}
		if stop.Reason != "" {
			text += fmt.Sprintf(" because of %q", stop.Reason)
		}
	}
	return text
}

func describeCall(c session.Call) string {
	text := map[session.CallKind]string{session.Approval: "approval, ", session.SubAgent: "sub-agent, "}[c.Kind]
	switch {
	case c.Answer == "":
		text += "open"
	case c.Answer == session.AnswerClient:
		text += fmt.Sprintf("answered %q", c.Response)
	default:
		text += "answered by " + map[session.AnswerKind]string{
			session.AnswerTimeout: "a timeout", session.AnswerAbandoned: "an abandonment", session.AnswerChild: "its child",
		}[c.Answer]
	}
	if c.Revision > 1 {
		text += fmt.Sprintf(", revision %d", c.Revision)
	}
	switch {
	case c.ConsumedStep > 0:
		text += fmt.Sprintf(", consumed by step %d", c.ConsumedStep)
	case c.ConsumedAt > 0:
		text += ", consumed by the end of its run"
	}
	if c.LateAt > 0 {
		text += fmt.Sprintf(", late answer %q", c.Late)
	}
	if c.LateReported {
		text += fmt.Sprintf(", reported by step %d", c.LateReportedStep)
	}
	if c.RunID == "" {
		text += ", without a run"
	}
	return text
}

// difference returns the lines of the rows that have changed, and those that have gone.
func difference(before, after []row) (lines []string) {
	for _, r := range after {
		if !slices.Contains(before, r) {
			lines = append(lines, r.name+": "+r.text)
		}
	}
	for _, r := range before {
		if !slices.ContainsFunc(after, func(a row) bool { return a.name == r.name }) {
			lines = append(lines, r.name+": gone")
		}
	}
	return lines
}
