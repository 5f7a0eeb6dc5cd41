package cloudflare

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/files"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
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
	if state := cmp.Or(now.GetSession().GetCustomState(), a.initial); state != "" {
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
	files.Show(s.Files.Base(r), messages)
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
