package chat

import (
	"container/list"
	"sync"
	"time"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// delivered remembers of the newest messages, up to its size, whether this gateway has told
// some reader the end, and when a reader was last cut. Readers cannot be told apart: who
// asks may be the one who was cut or another, so nobody who comes settles what a cut has
// left open, and only time does. What it has forgotten, or another gateway has told, is told
// once more: a replay puts the same message in place.
type delivered struct {
	size int

	mu       sync.Mutex
	order    *list.List // of *toldMessage, the newest at the front
	messages map[string]*list.Element
}

// toldMessage is a message that was told.
type toldMessage struct {
	key string
	run string    // whose end was told; "" for none
	cut time.Time // when a reader was last cut; zero for never
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

// lose says that somebody was cut then.
func (d *delivered) lose(message string, then time.Time) {
	d.change(message, func(m *toldMessage) { m.cut = then })
}

// of says whether somebody was told the end of the run, and when a reader of its message was
// last cut: zero for never.
func (d *delivered) of(message, run string) (told bool, cut time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.messages[message]
	if e == nil {
		return false, time.Time{}
	}
	m := e.Value.(*toldMessage)
	return m.run == run, m.cut
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
