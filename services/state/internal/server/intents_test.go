package server

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

var rewrite = flag.Bool("update", false, "write the scenarios of testdata/post anew, as they come out")

// TestIntentsFollowTheirScenarios plays each scenario of testdata/post on every store. A
// scenario is a list of acts, the methods of scene. Lines that begin with "> " are the results.
// Runs are named r1, r2 … in order, and a run's answer has the run's name.
func TestIntentsFollowTheirScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/post/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %v, %v; want scenarios", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
				got := play(open, string(text))
				if got == string(text) {
					return
				}
				if !*rewrite {
					t.Errorf("got\n%s", got)
				} else if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// play returns the scenario with the results of its acts. A line that begins with "=" begins a
// new conversation.
func play(open func(...func(*Config)) *bench, text string) string {
	var out strings.Builder
	var s *scene
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, ">"):
			continue
		case strings.HasPrefix(line, "="):
			s = &scene{bench: open(), session: "s"}
			s.stream = s.bench.open("e1", 100)
		}
		out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "=") || strings.HasPrefix(line, "#") {
			continue
		}
		out.WriteString("> " + s.act(line) + "\n")
	}
	return out.String()
}

// scene is a conversation with a client and an executor.
type scene struct {
	*bench
	stream  *stream
	session string
	runs    []string
	claim   *statev1.Claim // of the executing run
	permits int            // announcements of rules
}

// act runs a line: a word, arguments, a quoted text, and options as name=value.
func (s *scene) act(line string) string {
	before, rest, _ := strings.Cut(line, `"`)
	text, behind, _ := strings.Cut(rest, `"`)
	words := strings.Fields(before + behind)
	a := act{text: text, options: map[string]string{}}
	for _, word := range words[1:] {
		if name, value, found := strings.Cut(word, "="); found {
			a.options[name] = value
		} else {
			a.args = append(a.args, word)
		}
	}
	do, known := map[string]func(act) string{
		"send": s.send, "edit": s.edit, "regenerate": s.regenerate, "resume": s.resume, "retry": s.retry, "branch": s.branch,
		"answer": s.answer, "step": s.step, "complete": s.step, "fail": s.step, "suspend": s.suspend, "interrupt": s.stop, "abort": s.stop,
		"permit": s.permit,
	}[words[0]]
	if !known {
		return "there is no such act"
	}
	a.word = words[0]
	return do(a)
}

type act struct {
	word    string
	args    []string
	text    string
	options map[string]string
}

// post sends the request, and prints the response and the conversation.
func (s *scene) post(a act, r *statev1.StartRunRequest) string {
	sends := r.GetIntent() == nil || r.GetEdit() != nil || r.GetRegenerate() != nil
	r.Tenant, r.SessionId, r.RequestKey, r.AbandonCalls = "acme", s.session, a.options["key"], sends
	if seen := a.options["seen"]; seen != "" {
		r.SeenRunId = s.run(seen)
	}
	policies := map[string]statev1.BusyPolicy{"enqueue": enqueues, "reject": statev1.BusyPolicy_BUSY_POLICY_REJECT, "interrupt": statev1.BusyPolicy_BUSY_POLICY_INTERRUPT}
	r.OnBusy, r.DefaultOnBusy = policies[a.options["busy"]], policies[a.options["default"]]
	if sends {
		r.AgentType = "support"
	}
	if has := a.options["has"]; has != "" {
		r.EarlierMessageIds = strings.Split(has, ",")
		r.Missing = statev1.MissingPolicy(statev1.MissingPolicy_value["MISSING_POLICY_"+strings.ToUpper(cmp.Or(a.options["missing"], "rewind"))])
	}
	if by := a.options["by"]; by != "" {
		r.Caller = &statev1.Caller{Actor: "user:" + by}
	}
	if len(r.GetMessages()) == 0 && a.text != "" {
		r.Messages = []*eventv1.Message{said(eventv1.Role_ROLE_USER, "", a.text)}
	}
	if n := len(r.GetMessages()); n > 0 && a.options["tools"]+a.options["instructions"] != "" {
		in := &eventv1.CallerInput{Instructions: a.options["instructions"]}
		for _, name := range strings.FieldsFunc(a.options["tools"], func(c rune) bool { return c == ',' }) {
			in.Tools = append(in.Tools, &eventv1.CallerTool{Name: name, InputSchema: `{"type":"object"}`})
		}
		r.Messages[n-1].Caller = in
	}
	got, err := s.bench.runs.StartRun(s.Context(), r)
	if err != nil {
		return "refused: " + fault.ReasonOf(err)
	}
	s.session = got.GetSession().GetSessionId()
	what := "begun"
	switch {
	case got.GetRepeated() && got.GetWaiting():
		what = "repeated, waits"
	case got.GetRepeated():
		what = "repeated"
	case got.GetWaiting():
		what = "waits"
	case got.GetSessionCreated():
		what = "begun in a new session"
	}
	if n := got.GetRemovedMessages(); n > 0 {
		what += fmt.Sprintf(", %d removed", n)
	}
	if n := got.GetMissingMessages(); n > 0 {
		what += fmt.Sprintf(", %d missing at the client", n)
	}
	return s.name(got.GetRun().GetRunId()) + " " + what + "; " + s.conversationOf()
}

// permit announces the agent again, with other rules for callers.
func (s *scene) permit(a act) string {
	rules := &statev1.AgentRules{CallerInstructions: a.options["instructions"] == "yes"}
	if len(a.args) > 0 {
		most, err := strconv.ParseInt(cmp.Or(a.options["max"], "16"), 10, 32)
		s.must(err)
		rules.CallerTools = &statev1.CallerTools{Allow: a.args, Max: int32(most), Taken: []string{"page_own"}}
	}
	s.permits++ // a known executor would not be waited for
	executor := fmt.Sprintf("permits-%d", s.permits)
	s.announcing(&statev1.ClaimRunsRequest{ExecutorId: executor, Agents: []*statev1.Agent{{AgentType: "support", Rules: rules}}})
	return "ok"
}

func (s *scene) messages(a act) []*eventv1.Message {
	if len(a.args) == 0 {
		return nil
	}
	return []*eventv1.Message{said(eventv1.Role_ROLE_USER, a.args[0], a.text)}
}

func (s *scene) send(a act) string {
	return s.post(a, &statev1.StartRunRequest{Messages: s.messages(a)})
}

// edit gives the new message the id of the old one, or that of the option as.
func (s *scene) edit(a act) string {
	messages := s.messages(a)
	messages[0].Id = cmp.Or(a.options["as"], messages[0].GetId())
	return s.post(a, &statev1.StartRunRequest{Messages: messages, Intent: &statev1.StartRunRequest_Edit{Edit: &statev1.Edit{MessageId: a.args[0]}}})
}

// regenerate takes a question, or a run for its answer.
func (s *scene) regenerate(a act) string {
	intent := &statev1.Regenerate{MessageId: s.messageOf(a.args[0]), AnswerId: s.messageOf(a.options["answer"])}
	r := &statev1.StartRunRequest{Intent: &statev1.StartRunRequest_Regenerate{Regenerate: intent}}
	if a.text != "" {
		r.Messages = s.messages(a)
	}
	return s.post(a, r)
}

// resume takes a write of the custom state as set=KEY:JSON.
func (s *scene) resume(a act) string {
	r := &statev1.Resume{CheckpointId: s.checkpoint(a)}
	if key, value, given := strings.Cut(a.options["set"], ":"); given {
		r.StateOps = []*statev1.StateOp{{Key: key, Op: &statev1.StateOp_Replace{Replace: value}}}
	}
	return s.post(a, &statev1.StartRunRequest{Intent: &statev1.StartRunRequest_Resume{Resume: r}})
}

func (s *scene) retry(a act) string {
	return s.post(a, &statev1.StartRunRequest{Intent: &statev1.StartRunRequest_Retry{Retry: &statev1.Retry{}}})
}

func (s *scene) branch(a act) string {
	from, at := s.session, s.checkpoint(a)
	s.session = a.options["to"]
	got := s.post(a, &statev1.StartRunRequest{Intent: &statev1.StartRunRequest_Branch{Branch: &statev1.Branch{FromSessionId: from, CheckpointId: at}}})
	s.session = from
	return got
}

func (s *scene) checkpoint(a act) string {
	got, err := s.points.ListCheckpoints(s.Context(), &statev1.ListCheckpointsRequest{Tenant: "acme", SessionId: s.session})
	if fault.ReasonOf(err) != "SESSION_NOT_FOUND" {
		s.must(err)
	}
	for _, c := range got.GetCheckpoints() {
		if fmt.Sprint(c.GetStep()) == a.options["step"] {
			return c.GetCheckpointId()
		}
	}
	return a.options["step"]
}

// answer answers calls.
func (s *scene) answer(a act) string {
	r := &statev1.SubmitCallsRequest{Tenant: "acme", SessionId: s.session, Answers: answersTo(a.args...)}
	r.GoOn = statev1.GoOn(statev1.GoOn_value["GO_ON_"+strings.ToUpper(a.options["go-on"])])
	if seen := a.options["seen"]; seen != "" {
		r.SeenRunId = s.run(seen)
	}
	got, err := s.calls.SubmitCalls(s.Context(), r)
	if err != nil {
		return "refused: " + fault.ReasonOf(err)
	}
	said := s.name(got.GetRun().GetRunId())
	for _, c := range got.GetCalls() {
		said += " " + strings.ToLower(strings.TrimPrefix(c.GetOutcome().String(), "OUTCOME_"))
	}
	return said + "; " + s.conversationOf()
}

// step commits a step of the queued or executing run, with a text; tools=yes adds the result of
// a tool. complete and fail end the run.
func (s *scene) step(a act) string {
	n := s.executing().GetSession().GetStepCount() + 1
	commit := step(refTo(s.claim), n)
	commit.Messages[0].Id, commit.Messages[0].Parts = fmt.Sprintf("step-%d", n), said(eventv1.Role_ROLE_ASSISTANT, "", a.text).GetParts()
	if a.options["reply"] == "failed" {
		commit.Messages[0].Metadata = map[string]string{agent.MetadataFailed: "framework_model"}
	}
	if a.options["tools"] == "yes" {
		result := &eventv1.Part{Part: &eventv1.Part_ToolResult{ToolResult: &eventv1.ToolResultPart{ToolCallId: fmt.Sprintf("call-%d", n), ToolName: "do"}}}
		commit.Messages = append(commit.Messages, &eventv1.Message{Id: fmt.Sprintf("tool-%d", n), Role: eventv1.Role_ROLE_TOOL, Parts: []*eventv1.Part{result}})
	}
	switch a.word {
	case "complete":
		commit.Outcome = &statev1.Outcome{Status: completed}
	case "fail":
		commit.Outcome = &statev1.Outcome{Status: failed, Failure: &statev1.Failure{Error: "it broke", Code: a.options["code"]}}
	}
	return s.commit(commit)
}

func (s *scene) suspend(a act) string {
	n := s.executing().GetSession().GetStepCount() + 1
	commit := suspendingStep(refTo(s.claim), n, a.args...)
	commit.Messages[0].Id = fmt.Sprintf("step-%d", n)
	return s.commit(commit)
}

func (s *scene) executing() *statev1.Claim {
	current := s.get(s.session).GetSession().GetCurrentRunId()
	for s.claim.GetRun().GetRunId() != current { // a client may have ended the claimed run
		s.claim = s.stream.execute()
	}
	return s.claim
}

func (s *scene) commit(r *statev1.CommitStepRequest) string {
	for _, c := range s.get(s.session).GetCalls() {
		if c.GetAnswer() != nil && c.GetConsumedAt() == 0 {
			r.ConsumedCalls = append(r.ConsumedCalls, &statev1.ConsumedCall{ToolCallId: c.GetToolCallId(), Revision: c.GetRevision()})
		}
	}
	run := s.claim.GetRun().GetRunId()
	s.bench.commit(r)
	if s.claim = proto.CloneOf(s.claim); r.GetOutcome() != nil {
		s.claim = nil
	} else {
		s.claim.Session.StepCount++
	}
	return s.name(run) + "; " + s.conversationOf()
}

// stop interrupts or aborts the session. An executing run ends with it, except with end=later: it has not noticed yet.
func (s *scene) stop(a act) string {
	kind := interrupts
	if a.word == "abort" {
		kind = statev1.StopKind_STOP_KIND_ABORT
	}
	_, err := s.bench.runs.RequestStop(s.Context(), &statev1.RequestStopRequest{Tenant: "acme", SessionId: s.session, Kind: kind})
	s.must(err)
	if s.get(s.session).GetSession().GetStatus() == active && a.options["end"] != "later" {
		outcome := &statev1.Outcome{Status: interrupted}
		if a.word == "abort" {
			outcome = &statev1.Outcome{Status: failed, Failure: &statev1.Failure{Error: "it was aborted", Code: "framework_cancelled"}}
		}
		_, err := s.work.FinishRun(s.Context(), &statev1.FinishRunRequest{Run: refTo(s.executing()), Outcome: outcome})
		s.must(err)
		s.claim = nil
	}
	return s.conversationOf()
}

// conversationOf prints the status of the session and its messages, each with its run.
func (s *scene) conversationOf() string {
	status := s.get(s.session).GetSession().GetStatus().String()
	said := []string{strings.ToLower(strings.TrimPrefix(status, "SESSION_STATUS_")) + ":"}
	for _, m := range s.told(s.session) {
		id := m.GetId()
		if strings.HasPrefix(id, "msg_") {
			id = "?"
		}
		brought := ""
		for _, tool := range m.GetCaller().GetTools() {
			brought += "+" + tool.GetName()
		}
		if m.GetCaller().GetInstructions() != "" {
			brought += "+instructions"
		}
		said = append(said, fmt.Sprintf("%s(%s)%s", id, s.name(m.GetRunId()), brought))
	}
	return strings.Join(said, " ")
}

// name returns the number of a run as its name.
func (s *scene) name(runID string) string {
	if !slices.Contains(s.runs, runID) {
		s.runs = append(s.runs, runID)
	}
	return fmt.Sprintf("r%d", slices.Index(s.runs, runID)+1)
}

// run returns the id of a named run, or the argument itself.
func (s *scene) run(name string) string {
	for i, id := range s.runs {
		if name == fmt.Sprintf("r%d", i+1) {
			return id
		}
	}
	return name
}

// messageOf returns the id of a run's answer, or the argument itself.
func (s *scene) messageOf(name string) string {
	if id := s.run(name); id != name {
		return s.bench.run(s.session, id).GetMessageId()
	}
	return name
}
