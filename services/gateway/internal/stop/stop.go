// Package stop ends runs early, for all public interfaces: softly (interrupt), so that the session
// can be resumed, or permanently (abort).
//
// A stop is durable when the request is answered. The executor of the run observes it within
// moments. A caller may wait for the end of the run.
package stop

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// MaxWait is how long a caller may wait for the end of a run.
const MaxWait = time.Minute

// Pauses between polls of a run until its end.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = 500 * time.Millisecond
)

// Stops stops runs. It may be used by many goroutines.
type Stops struct {
	Runs     statev1.RunServiceClient
	Sessions *conversation.Reader
	Streams  *httpapi.Streams // a waiting request counts as one
	Policy   retry.Policy
	Limits   httpapi.Limits // of a request body
}

// Request is a request to stop a run.
type Request struct {
	Tenant    string
	SessionID string
	RunID     string // "" for the current run
	Kind      statev1.StopKind
	Reason    string
	Wait      time.Duration // for the end of the run; 0 does not wait
}

// Stopped is the outcome of a request.
type Stopped struct {
	Effect string `json:"effect" enum:"requested,done,none"`
	RunID  string `json:"runId,omitempty"`
}

var effects = map[statev1.RequestStopResponse_Effect]string{
	statev1.RequestStopResponse_EFFECT_UNSPECIFIED: "none",
	statev1.RequestStopResponse_EFFECT_REQUESTED:   "requested",
	statev1.RequestStopResponse_EFFECT_DONE:        "done",
	statev1.RequestStopResponse_EFFECT_NONE:        "none",
}

// Stop requests the stop, and waits for the end of the run if r.Wait is above 0. Invalid
// (ID_INVALID, WAIT_INVALID, STOP_INVALID), NotFound (SESSION_NOT_FOUND, RUN_NOT_FOUND),
// Unavailable (STOP_NOT_OBSERVED: the run has not ended in time; it will), and, with a wait, the
// faults of httpapi.Streams.Open.
func (s *Stops) Stop(ctx context.Context, r Request) (Stopped, error) {
	if err := httpapi.CheckID("the session's id", r.SessionID); err != nil {
		return Stopped{}, err
	}
	if r.Wait < 0 || r.Wait > MaxWait {
		return Stopped{}, fault.New(fault.Invalid, "WAIT_INVALID", "the wait is %v; it must be from 0 to %v", r.Wait, MaxWait)
	}
	if r.Wait > 0 {
		stream, release, err := s.Streams.Open(ctx, httpapi.ProtocolWait)
		if err != nil {
			return Stopped{}, err
		}
		defer release()
		ctx = stream
	}
	request := &statev1.RequestStopRequest{
		Tenant: r.Tenant, SessionId: r.SessionID, RunId: r.RunID, Kind: r.Kind, Reason: r.Reason,
	}
	var answer *statev1.RequestStopResponse
	err := retry.Do(ctx, s.Policy, func() (err error) {
		answer, err = s.Runs.RequestStop(ctx, request)
		return err
	})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the caller has disconnected, or the gateway stops
	}
	if err != nil {
		return Stopped{}, err
	}
	stopped := Stopped{Effect: effects[answer.GetEffect()], RunID: answer.GetRunId()}
	if r.Wait > 0 && answer.GetEffect() == statev1.RequestStopResponse_EFFECT_REQUESTED {
		err = s.awaitEnd(ctx, r, &statev1.Run{SessionId: r.SessionID, RunId: answer.GetRunId()})
	}
	return stopped, err
}

// awaitEnd waits for the end of the run.
func (s *Stops) awaitEnd(ctx context.Context, r Request, run *statev1.Run) error {
	waiting, cancel := context.WithTimeout(ctx, r.Wait)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		now, err := s.Sessions.Run(waiting, r.Tenant, run)
		if err == nil && !conversation.Executing(now) && !conversation.Waiting(now) {
			return nil
		}
		if err != nil && waiting.Err() == nil && !retry.IsTransient(err) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-waiting.Done():
			timer.Stop()
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fault.New(fault.Unavailable, httpapi.StopNotObserved,
				"run %q has not ended within %v; the request is stored, and the stream will show the end", run.GetRunId(), r.Wait)
		}
	}
}

// Interrupt is POST /chat/{id}/interrupt, and POST /interrupt with the session in the query or the body.
func (s *Stops) Interrupt(w http.ResponseWriter, r *http.Request, tenant string) error {
	return s.serve(w, r, tenant, statev1.StopKind_STOP_KIND_INTERRUPT)
}

// Abort is POST /chat/{id}/abort, and POST /abort with the session in the query or the body.
func (s *Stops) Abort(w http.ResponseWriter, r *http.Request, tenant string) error {
	return s.serve(w, r, tenant, statev1.StopKind_STOP_KIND_ABORT)
}

// session returns the session that the path, the query or the body names. Invalid (BODY_INVALID): they
// name two.
func (b stopBody) session(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if id == "" {
		id = r.URL.Query().Get(sessionParameter.Name)
	}
	if id != "" && b.SessionID != "" && b.SessionID != id {
		return "", fault.New(fault.Invalid, "BODY_INVALID", "the address and sessionId name different sessions; leave sessionId out")
	}
	return cmp.Or(id, b.SessionID), nil
}

// serve answers 202 at once, or with ?wait=MILLISECONDS 200 when the run has ended.
func (s *Stops) serve(w http.ResponseWriter, r *http.Request, tenant string, kind statev1.StopKind) error {
	wait, err := waitParameter.Number(r)
	if err != nil {
		return err
	}
	var body stopBody
	if err := httpapi.ReadOptionalJSON(w, r, s.Limits, &body); err != nil {
		return err
	}
	if body.RunID != "" {
		if err := httpapi.CheckID("runId", body.RunID); err != nil {
			return err
		}
	}
	id, err := body.session(r)
	if err != nil {
		return err
	}
	stopped, err := s.Stop(r.Context(), Request{
		Tenant: tenant, SessionID: id, RunID: body.RunID, Kind: kind, Reason: body.Reason, Wait: time.Duration(wait) * time.Millisecond,
	})
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if wait > 0 {
		status = http.StatusOK
	}
	httpapi.WriteJSON(w, status, stopped)
	return nil
}
