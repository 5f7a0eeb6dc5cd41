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
	Name string // empty where the server named none
	Data string
}

func (e Event) String() string { return fmt.Sprintf("%s %s %s", e.ID, e.Name, e.Data) }

// holds reports whether one of the events has the text.
func holds(events []Event, text string) bool {
	return slices.ContainsFunc(events, func(e Event) bool { return strings.Contains(e.String(), text) })
}

// ErrDropped says that a body broke off instead of ending.
var ErrDropped = errors.New("the connection broke")

// Events reads the events of a body, or of a socket.
type Events struct {
	// Seen is everything that Next has returned.
	Seen []Event

	source interface {
		next() (Event, error)
		close()
	}
}

func newEvents(body io.ReadCloser) *Events {
	return &Events{source: &lines{body, bufio.NewReader(body)}}
}

// Next returns the next event; io.EOF at the clean end of the body, ErrDropped
// when it breaks off.
func (e *Events) Next() (Event, error) {
	event, err := e.source.next()
	if err == nil {
		e.Seen = append(e.Seen, event)
	}
	return event, err
}

// Close goes away in the middle, as a browser does.
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
