package server

import (
	"encoding/json"
	"time"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var deliveryStatuses = map[statev1.DeliveryStatus]session.DeliveryStatus{
	statev1.DeliveryStatus_DELIVERY_STATUS_UNSPECIFIED: "",
	statev1.DeliveryStatus_DELIVERY_STATUS_PENDING:     session.DeliveryPending,
	statev1.DeliveryStatus_DELIVERY_STATUS_DELIVERED:   session.DeliveryDelivered,
	statev1.DeliveryStatus_DELIVERY_STATUS_DEAD:        session.DeliveryDead,
}

// subscriptionOut keeps the secrets.
func subscriptionOut(s *session.Subscription) *statev1.Subscription {
	out := &statev1.Subscription{
		Id: s.ID, Url: s.URL, Agents: s.Agents, Paused: s.Paused, CreatedBy: s.CreatedBy,
		CreatedAt: int64(s.CreatedAt), UpdatedAt: int64(s.UpdatedAt),
	}
	for _, kind := range s.Kinds {
		out.Kinds = append(out.Kinds, string(kind))
	}
	return out
}

func deliveryOut(d *session.Delivery) *statev1.Delivery {
	out := &statev1.Delivery{
		Number: d.Number, SubscriptionId: d.SubscriptionID, EventId: d.ID, Kind: string(d.Kind), RunId: d.RunID, CallId: d.CallID,
		AgentType: d.AgentType, At: int64(d.At), Attempts: d.Attempts, Error: d.Error, EndedAt: int64(d.EndedAt),
	}
	if d.Kind != session.EventTest {
		out.SessionId = d.SessionID
	}
	for status, name := range deliveryStatuses {
		if name == d.Status {
			out.Status = status
		}
	}
	if d.Status == session.DeliveryPending {
		out.DueAt = int64(d.DueAt)
	}
	return out
}

func deliveryClaimOut(d *store.ClaimedDelivery) *statev1.DeliveryClaim {
	return &statev1.DeliveryClaim{
		Tenant: d.Tenant, Number: d.Number, ClaimId: d.ClaimID, TtlMs: claimTTL.Milliseconds(), Url: d.URL, Secrets: d.Secrets, EventId: d.ID,
		Body: eventBody(d),
	}
}

// payloadVersion is raised when a field of a payload changes its meaning or goes. New fields do not raise it.
const payloadVersion = 1

// payload is the body of a delivery, in the form of Standard Webhooks.
type payload struct {
	Type      session.EventKind `json:"type"`
	Timestamp string            `json:"timestamp"`
	Version   int               `json:"version"`
	Data      payloadData       `json:"data"`
}

type payloadData struct {
	SessionID       string            `json:"sessionId,omitempty"`
	RootSessionID   string            `json:"rootSessionId,omitempty"`
	ParentSessionID string            `json:"parentSessionId,omitempty"`
	Agent           string            `json:"agent,omitempty"`
	UserID          string            `json:"userId,omitempty"`
	Metadata        map[string]string `json:"metadata,omitempty"`
	// Deleted: the session is gone, and with it what is not here.
	Deleted bool         `json:"deleted,omitempty"`
	Run     *payloadRun  `json:"run,omitempty"`
	Call    *payloadCall `json:"call,omitempty"`
}

type payloadRun struct {
	ID               string            `json:"id"`
	Status           session.RunStatus `json:"status,omitempty"`
	Output           json.RawMessage   `json:"output,omitempty"`
	OutputOmitted    bool              `json:"outputOmitted,omitempty"`
	Failure          *session.Failure  `json:"failure,omitempty"`
	CompletionReason string            `json:"completionReason,omitempty"`
	FinishReason     string            `json:"finishReason,omitempty"`
	Usage            *session.Tokens   `json:"usage,omitempty"`
	Steps            int32             `json:"steps,omitempty"`
	Turn             int32             `json:"turn,omitempty"`
	StartedAt        string            `json:"startedAt,omitempty"`
	CompletedAt      string            `json:"completedAt,omitempty"`
}

type payloadCall struct {
	ID           string             `json:"id"`
	RunID        string             `json:"runId,omitempty"`
	ToolName     string             `json:"toolName,omitempty"`
	Kind         session.CallKind   `json:"kind,omitempty"`
	Input        json.RawMessage    `json:"input,omitempty"`
	InputOmitted bool               `json:"inputOmitted,omitempty"`
	Approvers    session.Approvers  `json:"approvers,omitempty"`
	DeadlineAt   string             `json:"deadlineAt,omitempty"`
	Answer       session.AnswerKind `json:"answer,omitempty"`
	AnsweredBy   string             `json:"answeredBy,omitempty"`
	AnsweredAt   string             `json:"answeredAt,omitempty"`
}

// eventBody returns the JSON of an event, with what is stored of its run or its call. A pending call shows no answer, also when
// it has one by now.
func eventBody(d *store.ClaimedDelivery) []byte {
	p := payload{Type: d.Kind, Timestamp: rfc3339(d.At), Version: payloadVersion}
	var facts struct {
		UserID   string             `json:"userId"`
		Status   session.RunStatus  `json:"status"`
		ToolName string             `json:"toolName"`
		Kind     session.CallKind   `json:"kind"`
		Answer   session.AnswerKind `json:"answer"`
	}
	_ = json.Unmarshal([]byte(d.Facts), &facts) // written by session.RecordEvents; empty for a test
	if d.Kind != session.EventTest {
		p.Data = payloadData{SessionID: d.SessionID, RootSessionID: d.RootID, Agent: d.AgentType, UserID: facts.UserID, Deleted: d.Session == nil}
	}
	if s := d.Session; s != nil {
		p.Data.UserID, p.Data.ParentSessionID, p.Data.Metadata = s.UserID, s.ParentID, s.Metadata
	}
	switch {
	case d.CallID != "":
		c := &payloadCall{ID: d.CallID, RunID: d.RunID, ToolName: facts.ToolName, Kind: facts.Kind, Answer: facts.Answer, InputOmitted: d.Omitted}
		if of := d.Call; of != nil {
			c.ToolName, c.Kind, c.Input, c.Approvers, c.DeadlineAt = of.ToolName, of.Kind, jsonOrNone(of.Input), of.Approvers, rfc3339(of.DeadlineAt)
			if d.Kind == session.EventCallAnswered && of.Answer == facts.Answer {
				c.AnsweredBy, c.AnsweredAt = of.AnsweredBy, rfc3339(of.AnsweredAt)
			}
		}
		p.Data.Call = c
	case d.RunID != "":
		r := &payloadRun{ID: d.RunID, Status: facts.Status, OutputOmitted: d.Omitted}
		if of := d.Run; of != nil {
			o := of.Outcome
			r.Output, r.Failure, r.Usage = jsonOrNone(o.Output), o.Failure, o.Usage
			r.CompletionReason, r.FinishReason = o.CompletionReason, o.FinishReason
			r.Steps, r.Turn = of.StepCount, of.Turn
			r.StartedAt, r.CompletedAt = rfc3339(of.StartedAt), rfc3339(of.CompletedAt)
		}
		p.Data.Run = r
	}
	body, err := json.Marshal(p)
	if err != nil { // texts always encode
		panic(err)
	}
	return body
}

func jsonOrNone(text string) json.RawMessage {
	if !json.Valid([]byte(text)) {
		return nil
	}
	return json.RawMessage(text)
}

func rfc3339(at session.Millis) string {
	if at == 0 {
		return ""
	}
	return time.UnixMilli(int64(at)).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
