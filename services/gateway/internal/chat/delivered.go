package chat

import (
	"container/list"
	"sync"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// delivered remembers of the newest messages, up to its size, whether this gateway has told
// some reader the end, and how many more readers were cut than have come to take it up: one
// reader's end says nothing of another one's. Readers cannot be told apart: one that comes
// for the first time counts as one that comes back. What it has forgotten, or another
// gateway has told, is told once more: a replay puts the same message in place.
type delivered struct {
	size int

	mu       sync.Mutex
	order    *list.List // of *toldMessage, the newest at the front
	messages map[string]*list.Element
}

// toldMessage is a message that was told.
type toldMessage struct {
	key string
	run string // whose end was told; "" for none
	cut int    // readers
}

func newDelivered(size int) *delivered {
	return &delivered{size: size, order: list.New(), messages: map[string]*list.Element{}}
}

// messageKey names the message that the run writes.
func messageKey(s *statev1.Session, run *statev1.Run) string {
	return s.GetTenant() + "\x00" + s.GetSessionId() + "\x00" + run.GetMessageId()
}

// add says that somebody was told the message to the end of the run.
func (d *delivered) add(message, run string) {
	d.change(message, func(m *toldMessage) { m.run = run })
}

// lose says that somebody was cut.
func (d *delivered) lose(message string) { d.change(message, func(m *toldMessage) { m.cut++ }) }

// comeBack says that somebody has come to take the message up, one of those who were cut, if
// any were.
func (d *delivered) comeBack(message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.messages[message]; e != nil {
		m := e.Value.(*toldMessage)
		m.cut = max(0, m.cut-1)
	}
}

// has reports whether nobody is known who lacks the end of the run, and somebody was told it.
func (d *delivered) has(message, run string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.messages[message]
	if e == nil {
		return false
	}
	m := e.Value.(*toldMessage)
	return m.run == run && m.cut == 0
}

func (d *delivered) change(message string, change func(*toldMessage)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.messages[message]
	if e == nil {
		e = d.order.PushFront(&toldMessage{key: message})
		d.messages[message] = e
	}
	d.order.MoveToFront(e)
	change(e.Value.(*toldMessage))
	if d.order.Len() > d.size {
		oldest := d.order.Back()
		d.order.Remove(oldest)
		delete(d.messages, oldest.Value.(*toldMessage).key)
	}
}
