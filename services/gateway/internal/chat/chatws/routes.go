package chatws

import (
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/chat"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// Routes are the routes of the chat over WebSockets.
func (s *Sockets) Routes() []httpapi.Route {
	return []httpapi.Route{{Method: http.MethodGet, Pattern: "/chat/ws", Handler: s.Serve, Scope: auth.Chat, About: httpapi.About{
		Name: "openChatSocket", Summary: "Serves the chat over one socket, for the AI SDK's WebSocketChatTransport.",
		Parameters: []httpapi.Parameter{chat.AISDKParameter()}, Stream: true, Frames: frames,
		Answers: []httpapi.Answer{{Status: http.StatusSwitchingProtocols, About: "a WebSocket"}},
		Faults:  httpapi.Faults{fault.Invalid: {httpapi.UpgradeRequired}},
	}}}
}
