package cloudflare

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// description is an instance for agentFetch.
type description struct {
	Agent     string          `json:"agent"`
	Name      string          `json:"name"`
	SessionID string          `json:"sessionId"`
	State     json.RawMessage `json:"state" doc:"null before the first write"`
}

// describe is GET /agents/{agent}/{name} without a socket.
func (s *Sockets) describe(w http.ResponseWriter, r *http.Request, tenant string) error {
	a, now, err := s.load(r, tenant)
	if err != nil {
		return err
	}
	d := description{Agent: a.segment, Name: a.name, SessionID: a.session, State: json.RawMessage("null")}
	if state := now.GetSession().GetCustomState(); state != "" {
		d.State = json.RawMessage(state)
	}
	httpapi.WriteJSON(w, http.StatusOK, d)
	return nil
}

// messages is GET /agents/{agent}/{name}/get-messages.
func (s *Sockets) messages(w http.ResponseWriter, r *http.Request, tenant string) error {
	_, now, err := s.load(r, tenant)
	if err != nil {
		return err
	}
	messages, err := s.transcript(r.Context(), now)
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusOK, messages)
	return nil
}

// load finds the instance of a path and reads its session, nil if there is none.
func (s *Sockets) load(r *http.Request, tenant string) (address, *statev1.GetSessionResponse, error) {
	a, err := s.resolve(r.Context(), r)
	if err != nil {
		return a, nil, err
	}
	now, err := s.Sessions.SessionDetails(r.Context(), tenant, a.session)
	if errors.Is(err, fault.NotFound) {
		return a, nil, nil
	}
	return a, now, err
}

// attempts is how often a conversation is read while messages are removed from it.
const attempts = 3

// transcript returns the newest part of the conversation, never nil. It is without the message that
// a live run has begun: the client receives that as a stream. Unavailable (SESSION_CHANGING).
func (s *Sockets) transcript(ctx context.Context, now *statev1.GetSessionResponse) ([]uistream.UIMessage, error) {
	session := now.GetSession()
	for range attempts {
		if session == nil || session.GetMessageCount() == 0 {
			return []uistream.UIMessage{}, nil
		}
		newest, err := s.Sessions.ReadNewest(ctx, session)
		if err != nil {
			return nil, err
		}
		if !newest.Changed {
			messages := settle(now, newest.Messages())
			return messages, s.Sessions.AddDescendants(ctx, now, messages)
		}
		if now, err = s.Sessions.SessionDetails(ctx, session.GetTenant(), session.GetSessionId()); err != nil {
			return nil, err
		}
		session = now.GetSession()
	}
	return nil, fault.New(fault.Unavailable, "SESSION_CHANGING", "the conversation changed during %d reads in a row; retry", attempts)
}

// settle shows the calls of the messages as they stand.
func settle(now *statev1.GetSessionResponse, messages []uistream.UIMessage) []uistream.UIMessage {
	run := now.GetCurrentRun()
	uistream.ShowPending(messages, conversation.PendingCalls(now))
	if !conversation.Executing(run) {
		messages = conversation.DropEmptyAnswer(messages, run)
		uistream.EndUnanswered(messages, conversation.UnansweredReasons(now, messages))
		return messages
	}
	last := len(messages) - 1
	if last >= 0 && run.GetEntry() == statev1.RunEntry_RUN_ENTRY_START && messages[last].ID == run.GetMessageId() {
		return messages[:last]
	}
	return messages
}
