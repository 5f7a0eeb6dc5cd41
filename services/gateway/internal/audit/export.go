package audit

import (
	"net/http"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// page is how many events are read at a time.
const page = 200

// Export serves the audit log of a tenant as lines of JSON.
type Export struct {
	Streams *httpapi.Streams
	State   statev1.AuditServiceClient // of a connection that names callers
	Policy  retry.Policy
	Audit   auth.Auditor // nil records nothing
}

// The parameters of an export.
var (
	from   = httpapi.Parameter{Name: "from", Doc: "entries from this time on, in milliseconds", Type: httpapi.Integer, Max: maxTime}
	before = httpapi.Parameter{
		Name: "before", Doc: "entries before this time, in milliseconds; 0 for no end", Type: httpapi.Integer, Max: maxTime,
	}
	session = httpapi.Parameter{Name: "sessionId", Doc: "only entries about this session"}
	actor   = httpapi.Parameter{Name: "actor", Doc: "only entries of this actor"}
	action  = httpapi.Parameter{Name: "action", Doc: "only entries with this action"}
	cursor  = httpapi.Parameter{Name: "cursor", Doc: "the cursor of the last line that was received; the export continues behind it"}
)

const maxTime = 1<<53 - 1

// Routes returns the route of the export.
func (e *Export) Routes() []httpapi.Route {
	return []httpapi.Route{{
		Method: http.MethodGet, Pattern: "/audit/export", Handler: e.Serve, Scope: auth.Admin,
		About: httpapi.About{
			Name:       "exportAudit",
			Summary:    "Returns the audit log as lines of JSON, the oldest entries first. The body ends cleanly only if it is complete. Continue later, or after a cut, with the cursor of the last line.",
			Parameters: []httpapi.Parameter{from, before, session, actor, action, cursor},
			Answers: []httpapi.Answer{
				{Status: http.StatusOK, About: "one entry in each line, as in listAuditEvents", Type: "application/x-ndjson"},
			},
			Faults: httpapi.Faults{fault.Invalid: {"CURSOR_INVALID", "ID_INVALID", "PARAMETER_INVALID"}},
			Stream: true,
		},
	}}
}

// Serve is GET /audit/export. It reads the next page when the client has taken the one before. It counts as a
// stream, and faults as Streams.Open does. Invalid
// (CURSOR_INVALID, ID_INVALID, PARAMETER_INVALID).
func (e *Export) Serve(w http.ResponseWriter, r *http.Request, tenant string) error {
	request, err := requestOf(r, tenant)
	if err != nil {
		return err
	}
	ctx, release, err := e.Streams.Open(r.Context(), httpapi.ProtocolExport)
	if err != nil {
		return err
	}
	defer release()
	if caller, known := auth.From(ctx); known && e.Audit != nil {
		e.Audit.Record(ctx, auth.Event{Action: auth.AuditExported, Tenant: tenant, Actor: caller.Actor(), Target: tenant})
	}
	r = r.WithContext(ctx)
	for first := true; ; first = false {
		events, more, err := e.read(r, request)
		switch {
		case err != nil && first:
			return err
		case err != nil:
			return httpapi.ErrCut
		}
		if first {
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("Cache-Control", "no-store, no-transform") // as of an event stream
		}
		if err := write(w, events); err != nil {
			return httpapi.ErrCut
		}
		if !more || len(events) == 0 {
			return nil
		}
		request.Cursor = events[len(events)-1].GetCursor()
	}
}

func requestOf(r *http.Request, tenant string) (*statev1.ListEventsRequest, error) {
	begin, err := from.Number(r)
	if err != nil {
		return nil, err
	}
	end, err := before.Number(r)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	return &statev1.ListEventsRequest{
		Tenant: tenant, SessionId: q.Get(session.Name), Actor: q.Get(actor.Name), Action: q.Get(action.Name), Cursor: q.Get(cursor.Name),
		From: begin, Before: end, OldestFirst: true, Limit: page,
	}, nil
}

func (e *Export) read(r *http.Request, request *statev1.ListEventsRequest) (events []*eventv1.AuditEvent, more bool, err error) {
	ctx := r.Context()
	err = retry.Do(ctx, e.Policy, func() error {
		answer, err := e.State.ListEvents(ctx, request)
		events, more = answer.GetEvents(), answer.GetHasMore()
		return err
	})
	return events, more, err
}

// write writes the lines, and sends them.
func write(w http.ResponseWriter, events []*eventv1.AuditEvent) error {
	var lines strings.Builder
	for _, event := range events {
		line, err := eventv1.MarshalMessage(event)
		if err != nil {
			return err
		}
		lines.Write(line)
		lines.WriteByte('\n')
	}
	if _, err := w.Write([]byte(lines.String())); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}
