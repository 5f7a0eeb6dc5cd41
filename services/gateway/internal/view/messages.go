package view

import (
	"errors"
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/files"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// Messages is GET /messages?sessionId=…&offset=0&limit=50. includeReasoning=false and
// includeToolResults=false leave these out. Invalid (ID_INVALID, PARAMETER_INVALID).
//
// The client chooses the id of a chat, so a page asks before the chat has begun. An unknown session, like
// one of another tenant or user, has no messages.
func (h *Handlers) Messages(w http.ResponseWriter, r *http.Request, tenant string) error {
	id, err := sessionParameter.String(r)
	if err != nil {
		return err
	}
	offset, err := messagesOffset.Number(r)
	if err != nil {
		return err
	}
	limit, err := messagesLimit.Number(r)
	if err != nil {
		return err
	}
	without, err := readWithout(r)
	if err != nil {
		return err
	}
	session, err := h.Sessions.SessionDetails(r.Context(), tenant, id)
	if errors.Is(err, fault.NotFound) {
		httpapi.WriteJSON(w, http.StatusOK, conversation.Page{Messages: []uistream.UIMessage{}, Offset: offset, Limit: int(limit)})
		return nil
	}
	if err != nil {
		return err
	}
	page, err := h.Sessions.Page(r.Context(), session, offset, int(limit))
	if err != nil {
		return err
	}
	if err := h.Sessions.AddDescendants(r.Context(), session, page.Messages); err != nil {
		return err
	}
	without.Apply(page.Messages)
	files.Show(h.Files.Base(r), page.Messages)
	httpapi.WriteJSON(w, http.StatusOK, page)
	return nil
}

// readWithout parses the parts to leave out. Invalid (PARAMETER_INVALID).
func readWithout(r *http.Request) (uistream.Omissions, error) {
	reasoning, err := withReasoning.Bool(r)
	if err != nil {
		return uistream.Omissions{}, err
	}
	results, err := withResults.Bool(r)
	return uistream.Omissions{Reasoning: !reasoning, Results: !results}, err
}
