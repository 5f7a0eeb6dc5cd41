package session

import "slices"

// MissingPolicy says what becomes of users' messages behind the newest of RunRequest.EarlierIDs. A client that sends its
// whole conversation and lacks the end has removed it, or has not seen it yet. The request looks the same in
// both cases.
type MissingPolicy string

// The policies.
const (
	MissingStays     MissingPolicy = ""
	MissingIsRemoved MissingPolicy = "rewind" // unless the client cannot have removed it: see findMissing
	MissingIsRefused MissingPolicy = "refuse"
)

// missingMessages are users' messages that the client lacks.
type missingMessages struct {
	replaced string // id of the first, which the request replaces; empty if they stay
	stay     int
}

func (c Send) checksMissing() bool { return c.Missing != MissingStays && len(c.EarlierIDs) > 0 }

// findMissing finds the users' messages that the client lacks, and decides whether the request replaces them. They
// stay if the client cannot have removed them: a run is live or waits, or a child works (works), and LastSeenRunID does not show that the
// client knows of it, or another caller has sent one of them. A live run that somebody has stopped counts as ended: users
// stop an answer, edit their message and send it before the run has noticed. Messages without a run, which programs append, do not
// count. Conflict (RUN_STALE) if the policy refuses, and an IncompleteViewError to see the messages and the first one's
// rewind point.
func (c Send) findMissing(v *View, works bool) (missingMessages, error) {
	known := c.newestKnown(v)
	if known < 0 || v.Current != nil && v.Current.TurnMessageCount <= known || v.Session.MessageCount <= known+1 {
		return missingMessages{}, nil
	}
	if v.Asked == nil {
		return missingMessages{}, &IncompleteViewError{[]Target{{Key: c.Key, Need: Need{AskedFrom: known + 1}}}}
	}
	missing, err := c.visible(v.Asked)
	live := v.Session.Status == Active && (v.Current == nil || v.Current.Stop == nil)
	mayBeUnseen := c.LastSeenRunID == "" && (live || v.Session.Waiting > 0 || works)
	switch {
	case err != nil || len(missing) == 0:
		return missingMessages{}, err
	case mayBeUnseen:
		return missingMessages{stay: len(missing)}, nil
	case c.Missing == MissingIsRefused:
		return missingMessages{}, v.Session.runStale(c.Key)
	case slices.ContainsFunc(missing, func(m Asked) bool { return m.StartedBy != c.By.Actor }):
		return missingMessages{stay: len(missing)}, nil
	}
	first := missing[0].ID
	if v.RewindPoint == nil || v.RewindPoint.Message.ID != first {
		need := c.needRewind()
		need.RewindToMessage = first
		return missingMessages{}, &IncompleteViewError{[]Target{{Key: c.Key, Need: need}}}
	}
	return missingMessages{replaced: first}, nil
}

// newestKnown returns the place of the newest message of EarlierIDs in the conversation; -1 for none.
func (c Send) newestKnown(v *View) int64 {
	newest := int64(-1)
	if !c.checksMissing() || v.Session == nil {
		return newest
	}
	for i, id := range v.TakenIDs {
		if slices.Contains(c.EarlierIDs, id) {
			newest = max(newest, v.TakenOrdinals[i])
		}
	}
	return newest
}

// visible returns the messages that users see.
func (c Send) visible(messages []Asked) (visible []Asked, err error) {
	for _, m := range messages {
		shown, err := c.Bodies.IsVisible(m.Message)
		if err != nil {
			return nil, err
		}
		if shown {
			visible = append(visible, m)
		}
	}
	return visible, nil
}
