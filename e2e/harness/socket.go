package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/coder/websocket"
)

// messageLimit is the largest message on a socket, in bytes.
const messageLimit = 16 << 20

// socket reads WebSocket frames as the events of /sse.
type socket struct {
	ctx  context.Context //nolint:containedctx // of the one connection, which is read with it
	conn *websocket.Conn
}

// dialSocket opens GET /ws after the cursor.
func (c Client) dialSocket(ctx context.Context, session, from string) (*Events, error) {
	path := "/ws?sessionId=" + url.QueryEscape(session) + "&fromSequence=" + from
	header := http.Header{}
	if c.Key != "" {
		header.Set("Authorization", "Bearer "+c.Key)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	//nolint:bodyclose // the connection has the body; that of a refusal needs no closing
	conn, response, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(c.URL, "http")+path, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, HTTPHeader: header, Subprotocols: []string{"holdfast.v2"},
	})
	if err != nil {
		if response == nil {
			return nil, err
		}
		text, _ := io.ReadAll(response.Body)
		return nil, &notOKError{request{method: http.MethodGet, path: path}, response.StatusCode, string(text)}
	}
	conn.SetReadLimit(messageLimit)
	return &Events{source: &socket{ctx, conn}}, nil
}

func (s *socket) close() { _ = s.conn.CloseNow() }

func (s *socket) next() (Event, error) {
	_, text, err := s.conn.Read(s.ctx)
	if err != nil {
		if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
			return Event{}, io.EOF
		}
		return Event{}, fmt.Errorf("%w: %w", ErrDropped, err)
	}
	var frame struct {
		Type      string `json:"type"`
		Sequence  int64  `json:"sequence"`
		SessionID string `json:"sessionId"`
	}
	if err := json.Unmarshal(text, &frame); err != nil {
		return Event{}, fmt.Errorf("the message %q is no frame: %w", text, err)
	}
	event := Event{Name: frame.Type, Data: string(text)}
	if frame.Sequence > 0 && frame.SessionID == "" {
		event.ID = strconv.FormatInt(frame.Sequence, 10)
	}
	return event, nil
}
