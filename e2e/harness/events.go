package harness

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Event is one server-sent event.
type Event struct {
	ID   string
	Name string // empty if the server sent none
	Data string
}

func (e Event) String() string { return fmt.Sprintf("%s %s %s", e.ID, e.Name, e.Data) }

// holds reports whether an event has the text.
func holds(events []Event, text string) bool {
	return slices.ContainsFunc(events, func(e Event) bool { return strings.Contains(e.String(), text) })
}

// ErrDropped means that a body broke off before its end.
var ErrDropped = errors.New("the connection broke")

// Events reads the events of a response body or a socket.
type Events struct {
	// Seen holds everything returned by Next.
	Seen []Event

	source interface {
		next() (Event, error)
		close()
	}
}

func newEvents(body io.ReadCloser) *Events {
	return &Events{source: &lines{body, bufio.NewReader(body)}}
}

// Next returns the next event. It returns io.EOF at the end of the body and ErrDropped if the body breaks off.
func (e *Events) Next() (Event, error) {
	event, err := e.source.next()
	if err == nil {
		e.Seen = append(e.Seen, event)
	}
	return event, err
}

// Close disconnects before the end, as a browser does.
func (e *Events) Close() { e.source.close() }

// lines reads the server-sent events of a body.
// (https://html.spec.whatwg.org/multipage/server-sent-events.html)
type lines struct {
	body io.ReadCloser
	r    *bufio.Reader
}

func (l *lines) close() { _ = l.body.Close() }

func (l *lines) next() (Event, error) {
	var event Event
	var data []string
	for {
		line, err := l.r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return Event{}, io.EOF
		}
		if err != nil {
			return Event{}, fmt.Errorf("%w: %w", ErrDropped, err)
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			if data == nil {
				event = Event{}
				continue
			}
			event.Data = strings.Join(data, "\n")
			return event, nil
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			event.ID = value
		case "event":
			event.Name = value
		case "data":
			data = append(data, value)
		}
	}
}
