package session

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestTheFirstReachedBoundRefusesARun(t *testing.T) {
	t.Parallel()
	starts := Bound{Kind: BoundStarts, Whose: "tenant", Limit: 0.5, Burst: 3}
	waits := starts
	waits.Wait = 1500
	queued := func(used int64) Bound { return Bound{Kind: BoundQueued, Whose: "user", Limit: 4, Used: used} }
	stored := func(used int64) Bound { return Bound{Kind: BoundBytes, Whose: "tenant", Limit: 100, Used: used} }
	for name, test := range map[string]struct {
		bounds []Bound
		want   string // the reason, the limit, its value, and the wait
	}{
		"none":                      {},
		"below all":                 {bounds: []Bound{starts, queued(3), stored(90)}},
		"too many starts":           {[]Bound{waits}, "QUOTA_STARTS tenant.startsPerSecond 0.5 1.5s"},
		"too many runs":             {[]Bound{starts, queued(4), stored(91)}, "QUOTA_QUEUED user.queued 4 1s"},
		"too many bytes":            {[]Bound{starts, queued(3), stored(91)}, "QUOTA_BYTES tenant.bytes 100 1m0s"},
		"bytes above the bound":     {[]Bound{stored(101)}, "QUOTA_BYTES tenant.bytes 100 1m0s"},
		"starts come before others": {[]Bound{waits, queued(4)}, "QUOTA_STARTS tenant.startsPerSecond 0.5 1.5s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := &Quotas{Bounds: test.bounds, Limited: func(string) bool { return false }}
			change := &Change{Session: &Session{UserID: "u1"}, NewRun: &Run{}}
			got := ""
			if f, ok := fault.From(q.check(change, 10)); ok {
				got = f.Reason + " " + f.Meta[fault.LimitName] + " " + f.Meta[fault.LimitValue] + " " + f.RetryAfter().String()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if err := q.check(&Change{Session: &Session{}}, 10); err != nil {
				t.Errorf("a change without a run: got %v, want none", err)
			}
		})
	}
}

func TestTheBoundsOfOneUserHoldForNoOther(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limited []string
		want    bool // the bounds of the user of the session are needed
	}{
		"neither is limited":            {},
		"the one asked for is limited":  {limited: []string{"asked"}, want: true},
		"the one of the row is limited": {limited: []string{"other"}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := &Quotas{UserID: "asked", Limited: func(userID string) bool { return slices.Contains(test.limited, userID) }}
			err := q.check(&Change{Session: &Session{UserID: "other"}, NewRun: &Run{}}, 0)
			other, ok := errors.AsType[*OtherUserError](err)
			if ok != test.want || ok && other.UserID != "other" {
				t.Errorf("got %v, want an OtherUserError: %v", err, test.want)
			}
			if err := q.check(&Change{Session: &Session{UserID: "asked"}, NewRun: &Run{}}, 0); err != nil {
				t.Errorf("the user itself: got %v, want none", err)
			}
		})
	}
}
