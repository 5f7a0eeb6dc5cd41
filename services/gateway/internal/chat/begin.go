package chat

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// say begins a run with the user's message. The message's id makes the key, so that two
// equal requests are one run.
func (p *post) say(ctx context.Context) (*Exchange, error) {
	r := p.start()
	derived := p.key == "" && p.wish.message.GetId() != ""
	if derived {
		r.RequestKey = keyOf("message", p.wish.message.GetId())
	}
	r.Messages = append(r.Messages, p.wish.message)
	r.Answers = submitted(p.wish.reply.inLastStep())
	var err error
	if r.AgentType == "" {
		if r.AgentType, err = p.chat.sessions.AgentFor(ctx, p.request.Tenant, p.body.ID); err != nil {
			return nil, err
		}
	}
	started, err := p.saidWith(ctx, r, derived)
	if err != nil {
		return nil, err
	}
	if started.GetRepeated() {
		return p.repeated(ctx, started, derived)
	}
	path := pathContinue
	switch {
	case started.GetSessionCreated():
		path = pathFresh
	case len(started.GetAbandonedCalls()) > 0:
		path = pathAbandon
	}
	return p.tell(path, started.GetSession(), started.GetRun()), nil
}

// maxKeys is how many keys are made from one message's id.
const maxKeys = 16

// said starts r. A derived key that finds a run which was given up while it waited, or one
// of another message, makes the next key: the message may never have arrived. Of one
// that has, the state service says so (MESSAGE_EXISTS).
func (p *post) said(ctx context.Context, r *statev1.StartRunRequest, derived bool) (*statev1.StartRunResponse, error) {
	for range maxKeys {
		started, err := p.begin(ctx, r)
		switch {
		case !derived:
			return started, err
		case fault.ReasonOf(err) == keyReused:
			r.RequestKey = keyOf(r.GetRequestKey(), content(p.wish.message))
		case err == nil && started.GetRepeated() && conversation.GivenUp(started.GetRun()):
			r.RequestKey = keyOf(r.GetRequestKey(), started.GetRun().GetRunId())
		default:
			return started, err
		}
	}
	r.RequestKey = p.chat.newID()
	return p.begin(ctx, r)
}

// keyOf makes a request key of what names the request.
func keyOf(names ...string) string {
	h := sha256.New()
	for _, name := range names {
		sum := sha256.Sum256([]byte(name))
		h.Write(sum[:])
	}
	return "chat:" + hex.EncodeToString(h.Sum(nil))
}

// content tells messages of one id from each other.
func content(m *eventv1.Message) string {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil { // it has texts that are no UTF-8, which the state service refuses
		return ""
	}
	return string(text)
}

// edit puts the message in the place of the one of the same id. One that never arrived
// is just said, and one that stands there as it is was sent before: a client that tries
// again sends that too.
//
// Equal requests that come at once are one run: each expects the conversation to be where
// it has seen it, and looks again where it is not.
func (p *post) edit(ctx context.Context) (*Exchange, error) {
	if e, err := p.saidBefore(ctx); e != nil || err != nil {
		return e, err
	}
	for look := range maxLooks {
		e, seen, err := p.same(ctx, look > 0)
		if e != nil || err != nil {
			return e, err
		}
		e, err = p.replace(ctx, seen)
		if fault.ReasonOf(err) != sessionChanged {
			return e, err
		}
	}
	return nil, p.stale()
}

// maxLooks is how often an edit looks at a conversation that changes under it.
const maxLooks = 8

// replace is edit for a conversation whose newest run is the one that was seen; nil says
// that there was no conversation. Conflict (SESSION_CHANGED).
func (p *post) replace(ctx context.Context, seen *string) (*Exchange, error) {
	r := p.start()
	r.TakeBack = &statev1.TakeBack{MessageId: p.wish.target}
	r.Messages = append(r.Messages, p.wish.message)
	if r.GetExpect() == nil && seen != nil {
		r.Expect = &statev1.Expectation{CurrentRunId: seen}
	}
	started, err := p.begin(ctx, r)
	switch {
	case unknown(err):
		return p.sayInstead(ctx)
	case fault.ReasonOf(err) == sessionBusy:
		if e, _, looking := p.same(ctx, true); e != nil && looking == nil { // an equal one came first
			return e, nil
		}
		e, saying := p.sayInstead(ctx) // it waits, or may
		if saying == nil || fault.ReasonOf(saying) == callNotOpen {
			return e, saying
		}
		return nil, err
	case err != nil:
		return nil, err
	}
	return p.begun(ctx, pathEdit, started, false)
}

// same tells the newest message where it answers what the client wants to say already;
// otherwise it gives the newest run that it has seen, "" for none and nil where there is
// no conversation. An answer that has failed or was stopped is none, and then another is
// wanted, but for one that was begun since the request came.
func (p *post) same(ctx context.Context, since bool) (e *Exchange, seen *string, err error) {
	session, newest, err := p.chat.sessions.Session(ctx, p.request.Tenant, p.body.ID)
	if errors.Is(err, fault.NotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	seen = proto.String(newest.GetRunId())
	failed := newest.GetStatus() == statev1.RunStatus_RUN_STATUS_FAILED || newest.GetStatus() == statev1.RunStatus_RUN_STATUS_INTERRUPTED
	if newest == nil || failed && !since {
		return nil, seen, nil
	}
	runs, err := p.chat.sessions.Message(ctx, p.request.Tenant, newest)
	if err != nil {
		return nil, nil, err
	}
	said, err := p.chat.opening(ctx, p.request.Tenant, runs[0])
	if err != nil {
		return nil, nil, err
	}
	equal := slices.EqualFunc(said.GetParts(), p.wish.message.GetParts(), func(a, b *eventv1.Part) bool { return proto.Equal(a, b) })
	equal = equal && said.GetUiMetadata() == p.wish.message.GetUiMetadata()
	taken := said.GetRunId() != runs[0].GetRunId() // back meanwhile: the message is another run's
	if taken || said.GetId() != p.wish.target || !equal || p.body.RunID != "" && !among(runs, p.body.RunID) {
		return nil, seen, nil
	}
	return p.found(session, newest), seen, nil
}

// sayInstead says a message that could not be gone back to. The client's key stays that of
// going back: with it the message has a key of its own.
func (p *post) sayInstead(ctx context.Context) (*Exchange, error) {
	instead := *p
	instead.key = p.keyInstead()
	return instead.say(ctx)
}

func (p *post) keyInstead() string {
	if p.key == "" {
		return ""
	}
	return keyOf("instead", p.key)
}

// saidBefore tells the run that sayInstead has begun for an equal request of the client's
// key; nil where there is none. The request expects what never is: only a repetition is
// answered.
func (p *post) saidBefore(ctx context.Context) (*Exchange, error) {
	if p.key == "" || p.wish.message.GetId() == "" {
		return nil, nil //nolint:nilnil // it is no error, and no exchange
	}
	r := p.start()
	r.RequestKey, r.Messages = p.keyInstead(), append(r.Messages, p.wish.message)
	r.Expect = &statev1.Expectation{CurrentRunId: &r.RequestKey}
	started, err := p.chat.start(ctx, r)
	if errors.Is(err, fault.Conflict) || errors.Is(err, fault.NotFound) || errors.Is(err, fault.Invalid) {
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, err
	}
	return p.repeated(ctx, started, false)
}

// opening gives the message that stands where the run's first one was put; nil for none.
func (c *Chat) opening(ctx context.Context, tenant string, run *statev1.Run) (*eventv1.Message, error) {
	var got *statev1.ListMessagesResponse
	r := &statev1.ListMessagesRequest{Tenant: tenant, SessionId: run.GetSessionId(), Offset: run.GetStartMessageCount(), Limit: 1}
	err := retry.Do(ctx, c.policy, func() (err error) {
		got, err = c.sessions.Sessions.ListMessages(ctx, r)
		return err
	})
	if err != nil || len(got.GetMessages()) == 0 {
		return nil, err
	}
	return got.GetMessages()[0].GetMessage(), nil
}

// again answers a message of the user's anew.
func (p *post) again(ctx context.Context) (*Exchange, error) {
	if e, err := p.saidBefore(ctx); e != nil || err != nil {
		return e, err
	}
	r := p.start()
	r.TakeBack = &statev1.TakeBack{MessageId: p.wish.target, Keep: true}
	derived, err := p.keyAgain(ctx, r)
	if err != nil {
		return nil, err
	}
	started, err := p.begin(ctx, r)
	switch reused := fault.ReasonOf(err) == keyReused; {
	case reused && p.wish.message.GetId() == "": // an equal one may have found the question
		return p.againBefore(ctx, r, err)
	case reused && derived:
		r.RequestKey, derived = p.chat.newID(), false
		started, err = p.begin(ctx, r)
	}
	if unknown(err) && p.wish.message.GetId() != "" {
		return p.sayInstead(ctx)
	}
	if unknown(err) { // the id may be the answer's
		question, finding := p.chat.sessions.Question(ctx, p.request.Tenant, p.body.ID, p.wish.target)
		if finding != nil { // an equal one may have taken the answer back
			return p.againBefore(ctx, r, finding)
		}
		r.TakeBack.MessageId = question
		started, err = p.begin(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	return p.begun(ctx, pathRegenerate, started, derived)
}

// againBefore tells the run that an equal request has begun, which named the answer that is
// to be replaced by its id alone. That one is gone with it, so r has another content now than
// the equal one had; err is what has come of that, and stands where there was none.
func (p *post) againBefore(ctx context.Context, r *statev1.StartRunRequest, err error) (*Exchange, error) {
	question, looking := p.chat.sessions.Replaced(ctx, p.request.Tenant, p.body.ID, r.GetRequestKey(), p.wish.target)
	switch {
	case errors.Is(looking, fault.NotFound) && p.key == "":
		return p.newestWith(ctx, r.GetRequestKey(), err)
	case errors.Is(looking, fault.NotFound):
		return nil, err
	case looking != nil:
		return nil, looking
	case question == "":
		return nil, p.stale()
	}
	r.TakeBack.MessageId = question
	started, err := p.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	return p.begun(ctx, pathRegenerate, started, p.key == "")
}

// newestWith tells the newest run where a request without a key of the client's, which is
// equal to this one, has begun it under the derived key. Of any other err stands.
func (p *post) newestWith(ctx context.Context, key string, err error) (*Exchange, error) {
	session, newest, looking := p.chat.sessions.Session(ctx, p.request.Tenant, p.body.ID)
	switch {
	case looking != nil:
		return nil, looking
	case newest.GetRequestKey() != key:
		return nil, err
	}
	return p.found(session, newest), nil
}

// keyAgain gives r a key where the client has none: there is one answer in the place of
// another. Without that one's id it is the newest, so that requests are one run that come
// at once; who asks later has seen that run, and wants another.
func (p *post) keyAgain(ctx context.Context, r *statev1.StartRunRequest) (derived bool, err error) {
	switch {
	case p.key != "":
		return false, nil
	case p.wish.instead != "":
		r.RequestKey = keyOf("again", p.wish.instead)
		return true, nil
	}
	_, newest, err := p.chat.sessions.Session(ctx, p.request.Tenant, p.body.ID)
	if errors.Is(err, fault.NotFound) {
		return false, nil
	}
	r.RequestKey = keyOf("again", p.wish.target, newest.GetRunId())
	return true, err
}

// unknown reports whether the conversation does not have the message to go back to.
func unknown(err error) bool {
	reason := fault.ReasonOf(err)
	return reason == messageUnknown || reason == sessionUnknown
}

// begun tells a run that was begun by going back.
func (p *post) begun(ctx context.Context, path string, started *statev1.StartRunResponse, derived bool) (*Exchange, error) {
	if started.GetRepeated() {
		return p.repeated(ctx, started, derived)
	}
	return p.tell(path, started.GetSession(), started.GetRun()), nil
}

// start is the request for a run, without what it begins with. Its key is safe to
// repeat when the state service was away at the wrong moment.
func (p *post) start() *statev1.StartRunRequest {
	r := &statev1.StartRunRequest{
		Tenant: p.request.Tenant, SessionId: p.body.ID, AgentType: p.body.AgentType, RequestKey: p.key, OnBusy: p.busy, AbandonCalls: true,
	}
	if r.GetRequestKey() == "" {
		r.RequestKey = p.chat.newID()
	}
	if p.body.RunID != "" {
		r.Expect = &statev1.Expectation{CurrentRunId: &p.body.RunID}
	}
	return r
}

// begin starts r. Conflict (RUN_STALE): see believed.
func (p *post) begin(ctx context.Context, r *statev1.StartRunRequest) (*statev1.StartRunResponse, error) {
	started, err := p.chat.start(ctx, r)
	if p.body.RunID == "" {
		return started, err
	}
	if fault.ReasonOf(err) == sessionChanged {
		newest, moved := p.believed(ctx)
		if moved != nil {
			return nil, moved
		}
		r.Expect = &statev1.Expectation{CurrentRunId: &newest.RunId}
		started, err = p.chat.start(ctx, r)
	}
	if reason := fault.ReasonOf(err); reason == sessionUnknown || reason == sessionChanged {
		return nil, p.stale()
	}
	return started, err
}

func (c *Chat) start(ctx context.Context, r *statev1.StartRunRequest) (*statev1.StartRunResponse, error) {
	r.Traceparent, r.Tracestate = telemetry.Traceparent(ctx)
	var started *statev1.StartRunResponse
	err := retry.Do(ctx, c.policy, func() (err error) {
		started, err = c.runs.StartRun(ctx, r)
		return err
	})
	return started, err
}

// repeated tells the run that an equal request has begun, with the runs that have
// continued it. What is no longer the end of the conversation is told to those who name
// it by a key of their own, unless it was taken back.
func (p *post) repeated(ctx context.Context, started *statev1.StartRunResponse, derived bool) (*Exchange, error) {
	session, run := started.GetSession(), started.GetRun()
	if started.GetWaiting() || conversation.GivenUp(run) || run.GetRunId() == session.GetCurrentRunId() {
		return p.found(session, run), nil
	}
	now, newest, err := p.chat.sessions.Session(ctx, p.request.Tenant, p.body.ID)
	if err != nil {
		return nil, err
	}
	runs, err := p.chat.sessions.Message(ctx, p.request.Tenant, newest)
	switch {
	case err != nil:
		return nil, err
	case among(runs, run.GetRunId()):
		return p.found(now, newest), nil
	case derived:
		return nil, p.stale()
	}
	said, err := p.chat.opening(ctx, p.request.Tenant, run)
	if err != nil {
		return nil, err
	}
	if said.GetRunId() != run.GetRunId() {
		return nil, p.stale()
	}
	return p.found(session, run), nil
}
