package conversation

import (
	"context"
	"math"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// Replaced gives the id of the question that the run of the request key has answered in the
// place of the answer, whose own way to the question (Reader.Question) is gone with it: ""
// where the conversation has gone back behind that run since. NotFound (MESSAGE_NOT_FOUND)
// where the key has begun no run that replaced the answer, among the newest maxTurns.
func (r *Reader) Replaced(ctx context.Context, tenant, session, key, answer string) (question string, err error) {
	request := &statev1.ListRunsRequest{Tenant: tenant, SessionId: session, Limit: storedPage}
	look := replacement{key: key, above: math.MaxInt64}
	for seen := 0; seen < maxTurns && look.former == nil; {
		runs, err := r.ListRuns(ctx, request)
		if err != nil {
			return "", err
		}
		for _, run := range runs {
			look.take(run)
			if turn := run.GetTurn(); turn > 0 {
				request.BeforeTurn = turn
			}
		}
		if seen += len(runs); len(runs) == 0 || request.GetBeforeTurn() <= 1 {
			break
		}
	}
	if look.former == nil || look.former.GetMessageId() != answer {
		return "", noMessage(answer)
	}
	s, place := &statev1.Session{Tenant: tenant, SessionId: session}, look.run.GetStartMessageCount()
	messages, err := r.between(ctx, s, place, place+1)
	if err != nil || len(messages) == 0 {
		return "", err
	}
	if m := messages[0]; m.GetRunId() == look.run.GetRunId() && asks(m) {
		question = m.GetId()
	}
	return question, nil
}

// replacement looks for a run and the one whose answer it has replaced, among runs of which
// each is newer than the next. Runs stay when what they wrote is taken back, and say by
// where they began what was there: a run leaves nothing of those before it that began where
// it begins, or behind.
type replacement struct {
	key    string
	run    *statev1.Run // of the key; nil: not seen yet
	above  int64        // runs that began there or behind were gone when run began, those seen since
	former *statev1.Run // the one to which the place belonged where run has begun; nil: not seen yet
}

func (l *replacement) take(run *statev1.Run) {
	began := run.GetStartMessageCount()
	switch {
	case l.former != nil, Waiting(run), GivenUp(run):
	case l.run == nil:
		if run.GetRequestKey() == l.key {
			l.run = run
		}
	case began >= l.above:
	case began > l.run.GetStartMessageCount():
		l.above = began
	default:
		l.former = run
	}
}
