package server

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// grants makes and checks the grants of executors. Without a secret it does neither.
//
// A write of WorkService needs the grant of its claim, whoever calls. Other calls need a grant if an executor makes them.
// A grant of a claim is in force while the claim holds the run, which costs one read of the session; the heart
// checks the epoch of writes itself. A grant of a method is in force until it expires.
//
// The checks give Denied (GRANT_MISSING, GRANT_REFUSED), and Stale (EPOCH_STALE, RUN_FINISHED). What a grant does not cover
// and what does not exist are refused alike.
type grants struct {
	keys  grant.Keys
	store store.Reader
	now   func() time.Time
}

// sign returns the grant of a claim.
func (g *grants) sign(s *session.Session, ref session.ClaimRef) []byte {
	return g.keys.Sign(grant.Grant{Tenant: s.Tenant, Root: s.RootID, Session: s.SessionID, Run: ref.RunID, Epoch: ref.Epoch})
}

// signMethod returns the grant of a call of a method.
func (g *grants) signMethod(key session.Key, ttl time.Duration) []byte {
	return g.keys.Sign(grant.Grant{Tenant: key.Tenant, Session: key.SessionID, Expires: g.now().Add(ttl)})
}

// covers checks the grant of a write.
func (g *grants) covers(ref session.ClaimRef, sealed []byte) error {
	if !g.keys.Enabled() {
		return nil
	}
	presented, err := g.keys.Verify(sealed, g.now())
	if err == nil && (keyOf(presented) != ref.Key || presented.Run != ref.RunID || presented.Epoch != ref.Epoch) {
		err = grant.Refused("it is of another claim")
	}
	return err
}

func keyOf(g grant.Grant) session.Key { return session.Key{Tenant: g.Tenant, SessionID: g.Session} }

// presented returns the grant of an executor's call; false if the caller needs none.
func (g *grants) presented(ctx context.Context, tenant string) (presented grant.Grant, needed bool, err error) {
	if !g.keys.Enabled() || rpc.RoleOf(ctx) != rpc.RoleExecutor {
		return presented, false, nil
	}
	presented, err = g.keys.Verify(grant.FromContext(ctx), g.now())
	if err == nil && presented.Tenant != tenant {
		err = grant.Refused("it is of another tenant")
	}
	return presented, true, err
}

// ofMethod checks a call that only a method makes: it needs the grant of a method for the session.
func (g *grants) ofMethod(ctx context.Context, key session.Key) error {
	presented, needed, err := g.presented(ctx, key.Tenant)
	if err != nil || !needed {
		return err
	}
	if presented.Run != "" || keyOf(presented) != key {
		return refusedFor(key)
	}
	return nil
}

// creates checks the creation of a session: a method may create its own, which becomes a root.
func (g *grants) creates(ctx context.Context, key session.Key, r *statev1.CreateSessionRequest) error {
	if _, needed, err := g.presented(ctx, key.Tenant); err != nil || !needed {
		return err
	}
	if r.GetParent() != nil {
		return grant.Refused("a method creates no sub-sessions")
	}
	return g.ofMethod(ctx, key)
}

// ofClaim checks a call that only a run makes, about its own session: it needs the grant of the claim.
func (g *grants) ofClaim(ctx context.Context, key session.Key) error {
	presented, needed, err := g.presented(ctx, key.Tenant)
	if err != nil || !needed {
		return err
	}
	if presented.Run == "" || keyOf(presented) != key {
		return refusedFor(key)
	}
	return g.checkClaim(ctx, presented)
}

// ofSession checks a call of a run or a method about its own session.
func (g *grants) ofSession(ctx context.Context, key session.Key) error {
	presented, needed, err := g.presented(ctx, key.Tenant)
	if err != nil || !needed {
		return err
	}
	if keyOf(presented) != key {
		return refusedFor(key)
	}
	if presented.Run == "" {
		return nil
	}
	return g.checkClaim(ctx, presented)
}

// ofParent checks a call of a run about a sub-session directly below its own.
func (g *grants) ofParent(ctx context.Context, key session.Key) error {
	presented, needed, err := g.presented(ctx, key.Tenant)
	if err != nil || !needed {
		return err
	}
	found, err := g.store.Session(ctx, key)
	if errors.Is(err, fault.NotFound) || err == nil && (presented.Run == "" || found.Session.ParentID != presented.Session) {
		return refusedFor(key)
	}
	if err != nil {
		return err
	}
	return g.checkClaim(ctx, presented)
}

// reads checks a read of a session: the own one of a claim or a method, or one directly below that of a claim. The
// session may also be read after the end of the run, until the next one begins: an executor learns this way how its
// run was ended from outside.
func (g *grants) reads(ctx context.Context, key session.Key) error {
	presented, needed, err := g.presented(ctx, key.Tenant)
	if err != nil || !needed {
		return err
	}
	if keyOf(presented) != key {
		return g.ofParent(ctx, key)
	}
	if presented.Run == "" {
		return nil
	}
	err = g.checkClaim(ctx, presented)
	if fault.ReasonOf(err) == "RUN_FINISHED" {
		return nil
	}
	return err
}

// starts checks the start of a run: an executor may only send to sub-sessions directly below the session of its claim,
// which the command checks.
func (g *grants) starts(ctx context.Context, r *statev1.StartRunRequest) error {
	presented, needed, err := g.presented(ctx, r.GetTenant())
	if err != nil || !needed {
		return err
	}
	if presented.Run == "" || r.GetParent().GetSessionId() != presented.Session || r.GetIntent() != nil {
		return grant.Refused("an executor starts runs of sub-sessions of its session only")
	}
	return g.checkClaim(ctx, presented)
}

// files returns the session whose files the caller may read; false for all of the tenant.
func (g *grants) files(ctx context.Context, tenant string) (key session.Key, limited bool, err error) {
	presented, needed, err := g.presented(ctx, tenant)
	if err != nil || !needed {
		return key, needed, err
	}
	if presented.Run == "" {
		return key, true, grant.Refused("methods read no files")
	}
	return keyOf(presented), true, g.checkClaim(ctx, presented)
}

// checkClaim gives Stale (EPOCH_STALE, RUN_FINISHED) unless the claim of the grant holds the run.
func (g *grants) checkClaim(ctx context.Context, presented grant.Grant) error {
	ref := session.ClaimRef{Key: keyOf(presented), RunID: presented.Run, Epoch: presented.Epoch}
	found, err := g.store.Session(ctx, ref.Key)
	if err != nil {
		return err
	}
	return ref.CheckHeld(&found.Session, found.Current)
}

func refusedFor(key session.Key) error {
	return grant.Refused("it does not cover the session " + key.SessionID)
}
