package conversation

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// The sizes of a page of messages.
const (
	defaultLimit = 50
	maxLimit     = 200
)

// attempts is how often the messages are read that change while they are read together with
// the calls. Then the calls that come are those of a moment later, which nobody is asked
// that they do not know.
const attempts = 3

// Messages is GET /messages?sessionId=…&offset=0&limit=50, with includeReasoning=false and
// includeToolResults=false for readers that do not want them.
func (r *Reader) Messages(w http.ResponseWriter, request *http.Request, tenant string) error {
	id, err := SessionID(request)
	if err != nil {
		return err
	}
	whole, err := r.Whole(request.Context(), tenant, id)
	if err != nil {
		return err
	}
	offset, err := Number(request, "offset", 0, 0, 1<<62)
	if err != nil {
		return err
	}
	limit, err := Number(request, "limit", defaultLimit, 1, maxLimit)
	if err != nil {
		return err
	}
	without, err := without(request)
	if err != nil {
		return err
	}
	page, whole, err := r.standing(request.Context(), whole, offset, int(limit))
	if err != nil {
		return err
	}
	page.Messages = Spoken(page.Messages, whole.GetCurrentRun())
	uistream.Ask(page.Messages, Asked(whole))
	uistream.Close(page.Messages, Unanswered(whole, page.Messages))
	without.Leave(page.Messages)
	httpapi.WriteJSON(w, http.StatusOK, page)
	return nil
}

// standing gives a page with the session as it was when the page was read. Where no call of
// the page is open, it makes no difference how the session stands.
func (r *Reader) standing(ctx context.Context, whole *statev1.GetSessionResponse, offset int64, limit int) (*Page, *statev1.GetSessionResponse, error) {
	for attempt := 1; ; attempt++ {
		page, err := r.page(ctx, whole.GetSession(), offset, limit)
		if err != nil || !uistream.Open(page.Messages) {
			return page, whole, err
		}
		now, err := r.Whole(ctx, whole.GetSession().GetTenant(), whole.GetSession().GetSessionId())
		if err != nil || now.GetSession().GetVersion() == whole.GetSession().GetVersion() || attempt == attempts {
			return page, now, err
		}
		whole = now
	}
}

// without reads what is not wanted. Invalid (PARAMETER_INVALID).
func without(request *http.Request) (uistream.Without, error) {
	reasoning, err := yes(request, "includeReasoning")
	if err != nil {
		return uistream.Without{}, err
	}
	results, err := yes(request, "includeToolResults")
	return uistream.Without{Reasoning: !reasoning, Results: !results}, err
}

// yes gives a parameter that is true or false, and true when it is absent. Invalid
// (PARAMETER_INVALID).
func yes(request *http.Request, name string) (bool, error) {
	switch text := request.URL.Query().Get(name); text {
	case "", "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, fault.New(fault.Invalid, "PARAMETER_INVALID", "%s is %.30q: it has to be true or false", name, text)
	}
}

// status is how a session stands.
type status struct {
	SessionID   string          `json:"sessionId"`
	AgentType   string          `json:"agentType"`
	Status      string          `json:"status"`
	StepCount   int32           `json:"stepCount"`
	Output      json.RawMessage `json:"output,omitempty"`
	Error       string          `json:"error,omitempty"`
	RunID       string          `json:"runId,omitempty"`
	Checkpoint  string          `json:"checkpointId,omitempty"`
	IsExecuting bool            `json:"isExecuting"`
}

// Status is GET /status?sessionId=….
func (r *Reader) Status(w http.ResponseWriter, request *http.Request, tenant string) error {
	session, run, err := r.asked(request, tenant)
	if err != nil {
		return err
	}
	out := status{
		SessionID: session.GetSessionId(), AgentType: session.GetAgentType(), Status: SessionStatus(session.GetStatus()),
		StepCount: session.GetStepCount(), Error: session.GetFailure().GetError(), RunID: run.GetRunId(),
		Checkpoint: session.GetCheckpointId(), IsExecuting: Executing(run),
	}
	if output := session.GetOutput(); json.Valid([]byte(output)) {
		out.Output = json.RawMessage(output)
	}
	httpapi.WriteJSON(w, http.StatusOK, out)
	return nil
}

type agent struct {
	AgentType   string `json:"agentType"`
	Description string `json:"description"`
}

// Agents is GET /agents: what can be talked to, and the default, which is empty
// when there is none.
func (r *Reader) Agents(w http.ResponseWriter, request *http.Request, _ string) error {
	known, err := r.agents(request.Context())
	if err != nil {
		return err
	}
	agents := make([]agent, len(known))
	for i, a := range known {
		agents[i] = agent{a.GetAgentType(), a.GetDescription()}
	}
	chosen := r.DefaultAgent
	if chosen == "" && len(known) == 1 {
		chosen = known[0].GetAgentType()
	}
	httpapi.WriteJSON(w, http.StatusOK, map[string]any{"agents": agents, "default": chosen})
	return nil
}

// Asked gives the session's own calls that somebody outside answers, and how they were
// answered, of those whose answers no step has taken.
func Asked(s *statev1.GetSessionResponse) []uistream.Asked {
	return AskedOf(s.GetSession().GetSessionId(), s.GetCalls())
}

func (r *Reader) asked(request *http.Request, tenant string) (*statev1.Session, *statev1.Run, error) {
	id, err := SessionID(request)
	if err != nil {
		return nil, nil, err
	}
	return r.Session(request.Context(), tenant, id)
}

// SessionID gives the id of the session that is asked for. Invalid (ID_INVALID).
func SessionID(request *http.Request) (string, error) {
	id := request.URL.Query().Get("sessionId")
	return id, httpapi.CheckID("sessionId", id)
}

// Number gives a parameter that is a number. Invalid (PARAMETER_INVALID).
func Number(request *http.Request, name string, whenAbsent, least, most int64) (int64, error) {
	text := request.URL.Query().Get(name)
	if text == "" {
		return whenAbsent, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fault.New(fault.Invalid, "PARAMETER_INVALID", "%s is %.30q: it has to be a number from %d to %d", name, text, least, most)
	}
	return n, nil
}

// SessionStatus names a status as the public interfaces do.
func SessionStatus(s statev1.SessionStatus) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "SESSION_STATUS_"))
}

// RunStatus names a status as the public interfaces do: a run that waits for an
// executor is running.
func RunStatus(s statev1.RunStatus) string {
	if s == statev1.RunStatus_RUN_STATUS_QUEUED {
		s = statev1.RunStatus_RUN_STATUS_RUNNING
	}
	return strings.ToLower(strings.TrimPrefix(s.String(), "RUN_STATUS_"))
}
