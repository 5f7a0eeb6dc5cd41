package remote

import (
	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// SessionID returns the id of the remote session of a session here. It cannot be guessed without the local session.
func SessionID(local loop.Run) string {
	return "remote-" + loop.Digest(local.Tenant, local.SessionID, "remote session")
}

// maxCallID leaves room for the suffix within the limit of 256 bytes.
const maxCallID = 240

// CallID returns the id of a remote call in the session here, where other calls may have the same id.
func CallID(local loop.Run, callID string) string {
	if len(callID) > maxCallID {
		callID = loop.Digest(callID)
	}
	return callID + "_" + loop.Digest(local.Tenant, local.SessionID, "remote call")[:8]
}

// Messages returns the messages of a copied step. step is the number here.
func Messages(local loop.Run, step int, s Step) []agent.Message {
	var messages []agent.Message
	message := agent.Message{ID: loop.MessageID(local, step, "assistant", 0), Role: agent.RoleAssistant, Parts: s.Parts}
	if len(message.Calls()) > 0 || message.Text() != "" {
		messages = append(messages, message)
	}
	for n, result := range s.Results {
		messages = append(messages, agent.Message{ID: loop.MessageID(local, step, "tool", n), Role: agent.RoleTool, Parts: []agent.Part{result}})
	}
	return messages
}
