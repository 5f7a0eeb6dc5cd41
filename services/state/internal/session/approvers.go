package session

import "github.com/holdfast-run/holdfast/pkg/fault"

// Approvers says who may approve a call. All who reach the session may deny it.
type Approvers string

// The rules.
const (
	ApproversAny    Approvers = ""       // whoever reaches the session
	ApproversOthers Approvers = "others" // another actor of the tenant than the starter of the run; it must be identified
)

// IsIdentified reports whether an actor has proved who it is.
func IsIdentified(actor string) bool { return actor != "" && actor != "local" }

// userActor returns the actor of a user.
func userActor(userID string) string { return "user:" + userID }

// checkApprover gives Denied (APPROVER_REFUSED) if the actor may not approve the call of the session. An unknown
// starter could be the same person. A run that a server starts for a user is the user's as well.
func (c Call) checkApprover(s *Session, actor string) error {
	refuse := func(format string, args ...any) error {
		return fault.New(fault.Denied, "APPROVER_REFUSED", format, args...)
	}
	switch {
	case c.Approvers != ApproversOthers:
		return nil
	case !IsIdentified(actor):
		return refuse(
			"call %q needs the approval of a person or a key other than the one that started the run; send the approval with credentials",
			c.CallID,
		)
	case !IsIdentified(c.StartedBy):
		return refuse(
			"call %q needs the approval of somebody who did not start the run, and the run was started without credentials; deny the call, and start a run with credentials",
			c.CallID,
		)
	case actor == c.StartedBy:
		return refuse("%q started the run and may not approve its call %q; somebody else has to approve it", actor, c.CallID)
	case s.UserID != "" && actor == userActor(s.UserID):
		return refuse("%q is the user of the session and may not approve its call %q; somebody else has to approve it", actor, c.CallID)
	case c.Author != "" && actor == c.Author:
		return refuse("%q wrote the message that led to call %q and may not approve it; somebody else has to approve it", actor, c.CallID)
	default:
		return nil
	}
}

// isOpenTo reports whether a caller that does not reach the session may answer the call: it may
// approve the call, or has answered it before.
func (c Call) isOpenTo(s *Session, by Caller) bool {
	return c.Approvers == ApproversOthers && c.checkApprover(s, by.Actor) == nil && (c.isAwaited() || c.AnsweredBy == by.Actor)
}
