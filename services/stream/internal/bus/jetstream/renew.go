package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
)

// Limits of a renewal.
const (
	// renewTimeout bounds the settling of one doubt.
	renewTimeout = 20 * time.Second
	// probePause lies between two probes of this process in one partition, so
	// that doubts do not fill the log.
	probePause = 100 * time.Millisecond
	// proofPause lies between two questions to copies that lag.
	proofPause = 20 * time.Millisecond
	// renewPause lies between two attempts at a step of a renewal.
	renewPause = 100 * time.Millisecond
	// renewSteps is how often a look completes what others have left.
	renewSteps = 16
)

const (
	// lostReach is how many records a log is believed to have lost at most: a
	// partition begins anew so far above what is known of it, even when the clock
	// was set back.
	lostReach = 1 << 22
	// credibleReach is how far above the log, or the time, a sequence may be that
	// somebody claims to know: a week of microseconds, for clocks that were wrong.
	credibleReach = 7 * 24 * 3600 * 1_000_000
)

var (
	errUnsettled = errors.New("no copy of the partition is up to date")
	errRestless  = errors.New("others keep beginning the partition anew")
)

// beganOf reads where a partition was begun anew, 0 when it never was.
func beganOf(metadata map[string]string) uint64 {
	began, err := strconv.ParseUint(metadata[beganKey], 10, 64)
	if err != nil {
		return 0
	}
	return began
}

// Purge implements bus.Writer.
func (b *Bus) Purge(ctx context.Context, s bus.Stream, before uint64) error {
	p := b.partitionOf(s)
	return b.purge(ctx, p.number, b.names.subject(p.number, s), before)
}

// Renew implements bus.Renewer.
func (b *Bus) Renew(ctx context.Context, s bus.Stream, sequence uint64) (bool, error) {
	p := b.partitionOf(s)
	return b.settle(ctx, p, doubt{subject: b.names.subject(p.number, s), sequence: sequence})
}

// doubt is what a witness knows: the partition has had a record with this
// sequence.
type doubt struct {
	sequence uint64
	subject  string // of the record; "" for any
	replaced bool   // another record was seen to have the sequence now
}

// verdict is what becomes of a doubt.
type verdict uint8

const (
	unfounded verdict = iota
	founded
	begunAnew // somebody else did, meanwhile
)

// settle settles a doubt, and begins the partition anew when it is founded. One
// at a time does, in this process: the others find it done.
func (b *Bus) settle(ctx context.Context, p *partition, d doubt) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	state, err := b.lookWhole(ctx, p, "")
	if err != nil || d.sequence < state.began || d.sequence < state.First || !b.credible(d.sequence, state) {
		return false, err
	}
	if err := p.enter(ctx); err != nil {
		return false, bus.Unavailable("settle a doubt", err)
	}
	defer p.leave()
	// Whoever was here before may have begun the partition anew.
	if state, err = b.lookWhole(ctx, p, ""); err != nil || d.sequence < state.began || d.sequence < state.First {
		return err == nil && d.sequence < state.began, err
	}
	v, err := b.judge(ctx, p, d)
	if err != nil || v != founded {
		return v == begunAnew, err
	}
	b.log.Warn("the log has lost records that it had acknowledged; the partition begins anew",
		"partition", b.names.stream(p.number), "known", d.sequence, "last", state.Last)
	_, err = b.beginAnew(ctx, p, d.sequence)
	return err == nil, err
}

// credible reports whether the log can ever have given the sequence.
func (b *Bus) credible(sequence uint64, s state) bool {
	return sequence <= max(s.Last, bus.FirstSequence(b.options.Now()))+credibleReach
}

// enter waits until the doubt may be settled; leave must be called then.
func (p *partition) enter(ctx context.Context) error {
	select {
	case p.doubts <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *partition) leave() { <-p.doubts }

// judge finds out whether a doubt is founded. What the leader answers is looked
// at first, which writes nothing: it nearly always is right, and shows then that
// the doubt is not founded.
func (b *Bus) judge(ctx context.Context, p *partition, d doubt) (verdict, error) {
	if d.subject != "" {
		last, err := b.lastSequence(ctx, p, d.subject)
		if err != nil || last >= d.sequence {
			return unfounded, err
		}
	}
	probe, err := b.probe(ctx, p)
	if err != nil {
		return unfounded, err
	}
	for {
		v, settled, err := b.compareWith(ctx, p, probe, d)
		if settled || err != nil {
			return v, err
		}
		select {
		case <-time.After(proofPause):
		case <-ctx.Done():
			return unfounded, bus.Unavailable("settle a doubt", errUnsettled)
		}
	}
}

// compareWith judges by what copies say that have the probe, and so everything
// that was acknowledged before. It settles nothing when it comes upon others.
func (b *Bus) compareWith(ctx context.Context, p *partition, probe uint64, d doubt) (v verdict, settled bool, err error) {
	state, err := b.lookWhole(ctx, p, d.subject)
	if err != nil {
		return unfounded, false, err
	}
	switch {
	case state.Last < probe:
		return unfounded, false, nil
	case state.began > d.sequence:
		return begunAnew, true, nil
	case d.subject == "" && (d.replaced || probe <= d.sequence):
		return founded, true, nil // a sequence was given twice
	case d.subject == "" || state.First > d.sequence:
		return unfounded, true, nil
	case state.Subjects[d.subject] == 0:
		return b.compareEmpty(ctx, p, probe, d, state.leader)
	}
	last, err := b.lastBeside(ctx, p, d.subject, probe)
	switch {
	case err != nil || last == 0:
		return unfounded, false, err
	case last >= d.sequence:
		return unfounded, true, nil
	}
	// Retention takes the oldest first, so it would have taken this one, too.
	return founded, true, nil
}

// compareEmpty judges when the leader has nothing of the stream. Retention is
// the reason if it has come as far as the sequence; each copy removes what is
// too old at a time of its own, so the same one is asked.
func (b *Bus) compareEmpty(ctx context.Context, p *partition, probe uint64, d doubt, leader string) (v verdict, settled bool, err error) {
	state, err := b.lookWhole(ctx, p, "")
	switch {
	case err != nil || state.Last < probe || state.leader != leader:
		return unfounded, false, err
	case state.began > d.sequence:
		return begunAnew, true, nil
	case state.First > d.sequence:
		return unfounded, true, nil
	}
	return founded, true, nil
}

// probe writes a record that no reader is told and returns its sequence, after
// the pause that lies between two. Only whoever is in p.doubts calls it.
func (b *Bus) probe(ctx context.Context, p *partition) (uint64, error) {
	select {
	case <-time.After(time.Until(p.probed.Add(probePause))):
	case <-ctx.Done():
		return 0, bus.Unavailable("write a probe", ctx.Err())
	}
	ctx, cancel := b.link.request(ctx)
	defer cancel()
	answer, err := b.nc.RequestWithContext(ctx, b.names.probe(p.number), nil)
	if err != nil {
		return 0, bus.Unavailable("write a probe", err)
	}
	sequence, err := acknowledged(answer)
	if err != nil {
		return 0, err
	}
	former := p.probe
	p.probe, p.probed = sequence, time.Now()
	return sequence, b.removeProbe(ctx, p, former)
}

// removeProbe removes a probe, unless the partition begins with it: then the
// floor would rise, and readers would be told that retention has taken something.
func (b *Bus) removeProbe(ctx context.Context, p *partition, sequence uint64) error {
	if sequence == 0 {
		return nil
	}
	s, err := b.look(ctx, p.number, "")
	if err != nil || sequence <= s.First {
		return err
	}
	// A log that has lost its end may have given the sequence to a record since.
	subject, _, err := b.stored(ctx, p, sequence)
	if err != nil || subject != b.names.probe(p.number) {
		return err
	}
	return b.remove(ctx, p.number, sequence)
}

// stored returns the subject of the record with the sequence, and when it was
// stored; "" when there is none.
func (b *Bus) stored(ctx context.Context, p *partition, sequence uint64) (string, time.Time, error) {
	var body struct {
		Message struct {
			Subject string    `json:"subject"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	name := b.names.stream(p.number)
	err := b.ask(ctx, "STREAM.MSG.GET."+name, fmt.Appendf(nil, `{"seq":%d,"no_hdr":true}`, sequence), &body)
	switch {
	case isCode(err, apiNoMessage):
		return "", time.Time{}, nil
	case err != nil:
		return "", time.Time{}, bus.Unavailable("look at a record of "+name, err)
	}
	return body.Message.Subject, body.Message.Time, nil
}

// lastSequence asks the leader for the last sequence of the subject, 0 for
// none.
func (b *Bus) lastSequence(ctx context.Context, p *partition, subject string) (uint64, error) {
	ctx, cancel := b.link.request(ctx)
	defer cancel()
	last, err := b.last(ctx, p, subject)
	if err != nil || last == nil {
		return 0, err
	}
	return last.Sequence, nil
}

// lastBeside returns the last sequence of the subject on some copy that has the
// probe, 0 when the one that answered has not, or has nothing of the subject.
func (b *Bus) lastBeside(ctx context.Context, p *partition, subject string, probe uint64) (uint64, error) {
	ctx, cancel := b.link.request(ctx)
	defer cancel()
	name, probes := b.names.stream(p.number), b.names.probe(p.number)
	last := map[string]uint64{}
	request := fmt.Appendf(nil, `{"multi_last":[%q,%q],"batch":2}`, subject, probes)
	err := b.inbox.ask(ctx, "$JS.API.DIRECT.GET."+name, request, 3, func(m *nats.Msg) (bool, error) {
		h := parser{header: m.Header}
		if code := h.value(headerCode); code != "" {
			return true, nil // the end, or nothing there
		}
		last[h.value(headerSubject)] = h.sequence(headerSequence)
		return false, h.err
	})
	if err != nil {
		return 0, bus.Unavailable("look at the end of "+name, err)
	}
	if last[probes] < probe {
		return 0, nil
	}
	return last[subject], nil
}

// replaced reports whether another record than the one that was heard has its
// sequence.
func (b *Bus) replaced(ctx context.Context, p *partition, heard mark) bool {
	if heard.sequence == 0 {
		return false
	}
	ctx, cancel := b.link.request(ctx)
	defer cancel()
	subject, at, err := b.stored(ctx, p, heard.sequence)
	if err != nil || subject == "" {
		return false // it has gone, which may be right, or the log does not answer
	}
	stored, err := time.Parse(time.RFC3339Nano, heard.stored)
	return err == nil && (!stored.Equal(at) || subject != b.names.stored(p.number)+heard.key)
}

// lookWhole is look, and completes a renewal that was cut short. Where the
// partition began never goes down: if the log says less than was seen of it,
// another process has written an older configuration back, or a power cut took
// the newer one, and it is noted again.
func (b *Bus) lookWhole(ctx context.Context, p *partition, subject string) (state, error) {
	ctx, cancel := b.link.request(ctx)
	defer cancel()
	for range renewSteps {
		s, err := b.look(ctx, p.number, subject)
		if err != nil {
			return s, err
		}
		if began := p.rise(s.began); s.began < began {
			if err := b.noteBegan(ctx, p, began); err != nil {
				return state{}, err
			}
			continue
		}
		if !s.halfRenewed() {
			return s, nil
		}
		if err := b.purge(ctx, p.number, "", s.began); err != nil {
			return state{}, err
		}
		p.tail.renewed(s.began)
	}
	return state{}, bus.Unavailable("look at "+b.names.stream(p.number), errRestless)
}

// beginAnew begins the partition anew above the sequence, unless somebody has
// since, and returns where it stands then. A step that fails is repeated until
// ctx ends. See the package comment for the order of the steps.
func (b *Bus) beginAnew(ctx context.Context, p *partition, above uint64) (state, error) {
	var target uint64
	for {
		s, err := b.beginStep(ctx, p, above, &target)
		if err == nil && s.began >= target {
			p.tail.renewed(s.began)
			return s, nil
		}
		pause := proofPause
		if err != nil {
			pause = renewPause
		}
		select {
		case <-ctx.Done():
			return state{}, bus.Unavailable("begin "+b.names.stream(p.number)+" anew", cmp.Or(err, ctx.Err()))
		case <-time.After(pause):
		}
	}
}

// beginStep looks where the partition stands, completes what was begun, decides
// on the target if that is 0, and writes it down if the partition begins before.
func (b *Bus) beginStep(ctx context.Context, p *partition, above uint64, target *uint64) (state, error) {
	s, err := b.lookWhole(ctx, p, "")
	if err != nil {
		return state{}, err
	}
	if *target == 0 {
		*target = s.began // somebody else has
		if s.began <= above {
			*target = max(bus.FirstSequence(b.options.Now()), max(s.Last, above)+lostReach)
		}
	}
	if s.began >= *target {
		return s, nil
	}
	return s, b.noteBegan(ctx, p, *target)
}

// noteBegan writes down that the partition begins at the sequence. JetStream
// takes a configuration only whole, and not on condition: what another process
// writes at the same time may be lost, which each looks for (lookWhole, ensure).
func (b *Bus) noteBegan(ctx context.Context, p *partition, began uint64) error {
	ctx, cancel := b.link.request(ctx)
	defer cancel()
	name := b.names.stream(p.number)
	stream, err := b.js.Stream(ctx, name)
	if err != nil {
		return bus.Unavailable("look at "+name, err)
	}
	config := stream.CachedInfo().Config
	if beganOf(config.Metadata) >= began {
		return nil
	}
	config.Metadata = maps.Clone(config.Metadata)
	config.Metadata[beganKey] = strconv.FormatUint(began, 10)
	if _, err := b.js.UpdateStream(ctx, config); err != nil {
		return bus.Unavailable("begin "+name+" anew", err)
	}
	p.rise(began)
	return nil
}
