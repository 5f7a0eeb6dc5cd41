package server

import (
	"context"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// mostUsed bounds how many pairs of a source and a model are added up for one claim.
// What a run has used beyond them is left out: a claim is handed over all the same.
const mostUsed = 1000

// used fills in the tokens of the claimed run's entries. A run that nobody has claimed
// before has none, and is not looked up.
func (s *Server) used(ctx context.Context, d store.Decided, answer *statev1.ClaimRunsResponse) error {
	claim := answer.GetExecute()
	if d.View.Run.Attempt == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, claimWithin)
	defer cancel()
	key := d.View.Session.Key
	sums, err := s.store.UsageSums(ctx, key.Tenant, store.UsageQuery{
		Sessions: []string{key.SessionID}, RunID: claim.GetRun().GetRunId(), Kinds: []session.UsageKind{session.UsageTokens},
	}, mostUsed)
	if err != nil {
		return err
	}
	claim.Used = rollUp(sums).GetTokens()
	return nil
}
