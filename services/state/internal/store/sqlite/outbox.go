package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

var (
	subscriptionColumns = table.Subscriptions.All()
	deliveryColumns     = table.Deliveries.All()

	upsertSubscription = upsert(&table.Subscriptions)
	updateDelivery     = fmt.Sprintf(`UPDATE deliveries SET (%s) = (?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) WHERE tenant = ?1 AND number = ?2`,
		`status, due_at, first_at, attempts, error, executor_id, claim_id, ended_at, expires_at`)

	// insertDeliveries inserts a delivery of an event for each subscription that wants it.
	insertDeliveries = fmt.Sprintf(`INSERT INTO deliveries (tenant, subscription_id, session_id, event_id, kind, root_id, run_id, call_id,
			agent_type, happened_at, facts, status, due_at, expires_at)
		SELECT s.tenant, s.subscription_id, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 'pending', ?9, ?9 + %d FROM subscriptions s
		WHERE s.tenant = ?1 AND (s.kinds = '' OR EXISTS (SELECT 1 FROM json_each(s.kinds) WHERE value = ?4))
			AND (s.agents = '' OR EXISTS (SELECT 1 FROM json_each(s.agents) WHERE value = ?8))`, session.MaxDeliveryAge)
)

// PutSubscription implements store.Outbox. Transactions run one after the other, so none that began before is left.
func (s outbox) PutSubscription(ctx context.Context, tenant string, sub session.Subscription, most int) error {
	err := s.committer.Do(ctx, nil, 0, func(ctx context.Context, c *connection) (refused, err error) {
		var others int
		if _, err := c.queryRow(ctx, `SELECT count(*) FROM subscriptions WHERE tenant = ? AND subscription_id <> ?`, arguments(tenant, sub.ID),
			&others); err != nil {
			return nil, err
		}
		known, err := c.queryRow(ctx, `SELECT 1 FROM subscriptions WHERE tenant = ? AND subscription_id = ?`, arguments(tenant, sub.ID), new(int))
		if err == nil && !known && others >= most {
			return store.SubscriptionsFull(most), nil
		}
		if err == nil {
			_, err = c.exec(ctx, upsertSubscription.text, upsertSubscription.columns.Values([]any{tenant}, &sub)...)
		}
		return nil, err
	})
	return wrap(ctx, err, "write webhook %q", sub.ID)
}

// Subscription implements store.Outbox.
func (s outbox) Subscription(ctx context.Context, tenant, id string) (*session.Subscription, error) {
	all, err := s.Subscriptions(ctx, tenant)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(sub session.Subscription) bool { return sub.ID == id })
	if i < 0 {
		return nil, store.SubscriptionNotFound(id)
	}
	return &all[i], nil
}

// Subscriptions implements store.Outbox.
func (s outbox) Subscriptions(ctx context.Context, tenant string) (all []session.Subscription, err error) {
	err = s.read(ctx, func(c *connection) error {
		all = nil
		return c.forEach(ctx, `SELECT `+subscriptionColumns.Select("s")+` FROM subscriptions s WHERE s.tenant = ? ORDER BY s.subscription_id`,
			arguments(tenant), func(row scanner) error {
				var sub session.Subscription
				err := row.Scan(subscriptionColumns.Destinations(nil, &sub)...)
				all = append(all, sub)
				return err
			})
	})
	return all, wrap(ctx, err, "read the webhooks of tenant %q", tenant)
}

// DeleteSubscription implements store.Outbox.
func (s outbox) DeleteSubscription(ctx context.Context, tenant, id string) (known bool, err error) {
	err = s.committer.Do(ctx, nil, 0, func(ctx context.Context, c *connection) (refused, err error) {
		n, err := c.exec(ctx, `DELETE FROM subscriptions WHERE tenant = ? AND subscription_id = ?`, tenant, id)
		if known = n > 0; err == nil {
			_, err = c.exec(ctx, `DELETE FROM deliveries WHERE tenant = ? AND subscription_id = ?`, tenant, id)
		}
		return nil, err
	})
	return known, wrap(ctx, err, "delete webhook %q", id)
}

// DropOutbox implements store.Outbox.
func (s outbox) DropOutbox(ctx context.Context, tenant string) error {
	err := s.committer.Do(ctx, nil, 0, func(ctx context.Context, c *connection) (refused, err error) {
		s.erased.Store(true)
		if _, err = c.exec(ctx, `DELETE FROM subscriptions WHERE tenant = ?`, tenant); err == nil {
			_, err = c.exec(ctx, `DELETE FROM deliveries WHERE tenant = ?`, tenant)
		}
		return nil, err
	})
	return wrap(ctx, err, "delete the webhooks of tenant %q", tenant)
}

// AddDelivery implements store.Outbox.
func (s outbox) AddDelivery(ctx context.Context, tenant, subscriptionID, sessionID string, e session.Event) (number int64, err error) {
	err = s.committer.Do(ctx, nil, 0, func(ctx context.Context, c *connection) (refused, err error) {
		found, err := c.queryRow(ctx, fmt.Sprintf(`INSERT INTO deliveries (tenant, subscription_id, session_id, event_id, kind, root_id, run_id,
				call_id, agent_type, happened_at, facts, status, due_at, expires_at)
			SELECT tenant, subscription_id, ?3, ?4, ?5, '', '', '', ?6, ?7, ?8, 'pending', ?7, ?7 + %d
			FROM subscriptions WHERE tenant = ?1 AND subscription_id = ?2 RETURNING number`, session.MaxDeliveryAge),
			arguments(tenant, subscriptionID, sessionID, e.ID, string(e.Kind), e.AgentType, int64(e.At), e.Facts), &number)
		if err == nil && !found {
			refused = store.SubscriptionNotFound(subscriptionID)
		}
		return refused, err
	})
	return number, wrap(ctx, err, "add a delivery to webhook %q", subscriptionID)
}

// dueOf are the first pending deliveries of the sessions of a subscription.
const dueOf = `SELECT d.number, d.due_at FROM deliveries d
	WHERE d.tenant = ?1 AND d.subscription_id = ?2 AND d.status = 'pending' AND d.due_at <= ?3
	AND NOT EXISTS (SELECT 1 FROM deliveries e WHERE e.tenant = d.tenant AND e.subscription_id = d.subscription_id
		AND e.session_id = d.session_id AND e.status = 'pending' AND e.number < d.number)
	ORDER BY d.due_at, d.number LIMIT 0 + ?4`

// ClaimDeliveries implements store.Outbox.
func (s outbox) ClaimDeliveries(ctx context.Context, c store.DeliveryClaim) (list []store.ClaimedDelivery, idle bool, err error) {
	var subscribed, pending bool
	err = s.read(ctx, func(conn *connection) error {
		_, err := conn.queryRow(ctx, `SELECT EXISTS (SELECT 1 FROM subscriptions),
			EXISTS (SELECT 1 FROM deliveries WHERE status = 'pending')`, nil,
			&subscribed, &pending)
		return err
	})
	if err != nil || !pending {
		return nil, !subscribed, wrap(ctx, err, "look for deliveries")
	}
	err = s.committer.Do(ctx, nil, 0, func(ctx context.Context, conn *connection) (refused, err error) {
		list, err = claimDeliveries(ctx, conn, c)
		return nil, err
	})
	return list, !subscribed, wrap(ctx, err, "claim deliveries")
}

// subscriptionTurn is a subscription with due deliveries.
type subscriptionTurn struct {
	tenant, id string
	sending    int
	due        []int64
}

func claimDeliveries(ctx context.Context, conn *connection, c store.DeliveryClaim) ([]store.ClaimedDelivery, error) {
	if _, err := conn.exec(ctx, `UPDATE deliveries SET executor_id = '', claim_id = '', due_at = ? WHERE executor_id <> ''
		AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = deliveries.executor_id)`, int64(c.Now)); err != nil {
		return nil, err
	}
	known, err := conn.queryRow(ctx, `SELECT 1 FROM executors WHERE executor_id = ?`, arguments(c.ExecutorID), new(int))
	if err != nil || !known {
		return nil, err
	}
	var turns []subscriptionTurn
	err = conn.forEach(ctx, `SELECT s.tenant, s.subscription_id, (SELECT count(*) FROM deliveries d WHERE d.tenant = s.tenant
			AND d.subscription_id = s.subscription_id AND d.executor_id <> '' AND d.due_at > ?1) FROM subscriptions s
		WHERE NOT s.paused AND EXISTS (SELECT 1 FROM deliveries d WHERE d.tenant = s.tenant AND d.subscription_id = s.subscription_id
			AND d.status = 'pending' AND d.due_at <= ?1)`, arguments(int64(c.Now)), func(row scanner) error {
		var t subscriptionTurn
		err := row.Scan(&t.tenant, &t.id, &t.sending)
		turns = append(turns, t)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range turns {
		t := &turns[i]
		err := conn.forEach(ctx, dueOf, arguments(t.tenant, t.id, int64(c.Now), max(c.Each-t.sending, 0)), func(row scanner) error {
			var number int64
			err := row.Scan(&number, new(int64))
			t.due = append(t.due, number)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	var list []store.ClaimedDelivery
	for turn := range c.Each { // each subscription in its turn
		for i := range turns {
			t := &turns[i]
			if n := turn - t.sending; n < 0 || n >= len(t.due) || len(list) == c.Limit {
				continue
			}
			d, err := claimDelivery(ctx, conn, c, t.tenant, t.due[turn-t.sending])
			if err != nil {
				return nil, err
			}
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(a, b store.ClaimedDelivery) int { return int(a.Number - b.Number) })
	return list, nil
}

// claimDelivery claims a delivery and reads what it tells.
func claimDelivery(
	ctx context.Context, conn *connection, c store.DeliveryClaim, tenant string, number int64,
) (store.ClaimedDelivery, error) {
	d := store.ClaimedDelivery{Tenant: tenant}
	if _, err := conn.exec(ctx, `UPDATE deliveries SET executor_id = ?3, claim_id = ?4, due_at = ?6, attempts = attempts + 1,
		first_at = CASE WHEN first_at = 0 THEN ?5 ELSE first_at END WHERE tenant = ?1 AND number = ?2`,
		tenant, number, c.ExecutorID, c.ClaimID, int64(c.Now), int64(c.Until)); err != nil {
		return d, err
	}
	if _, err := conn.queryRow(ctx, `SELECT s.url, s.secrets, `+deliveryColumns.Select("d")+` FROM deliveries d
		JOIN subscriptions s ON s.tenant = d.tenant AND s.subscription_id = d.subscription_id WHERE d.tenant = ? AND d.number = ?`,
		arguments(tenant, number), deliveryColumns.Destinations([]any{&d.URL, table.AsJSON(&d.Secrets)}, &d.Delivery)...); err != nil {
		return d, err
	}
	var s session.Session
	found, err := conn.queryRow(ctx, `SELECT user_id, parent_id, status, metadata FROM sessions WHERE tenant = ? AND session_id = ?`,
		arguments(tenant, d.SessionID), &s.UserID, &s.ParentID, (*string)(&s.Status), table.AsJSON(&s.Metadata))
	if err != nil {
		return d, err
	}
	if found {
		d.Session = &s
	}
	key := session.Key{Tenant: tenant, SessionID: d.SessionID}
	switch {
	case d.CallID != "":
		calls, err := readCalls(ctx, conn, `l.tenant = ? AND l.root_id = ? AND l.call_id = ?`, tenant, d.RootID, d.CallID)
		if err != nil || len(calls) == 0 {
			return d, err
		}
		of := calls[0]
		d.Call = &session.Call{
			CallID: of.CallID, Input: of.Input, ToolName: of.ToolName, Kind: of.Kind, CreatedAt: of.CreatedAt, DeadlineAt: of.DeadlineAt,
			Answer: of.Answer, AnsweredAt: of.AnsweredAt, AnsweredBy: of.AnsweredBy, Approvers: of.Approvers,
		}
		if d.Omitted = len(of.Input) > c.MaxBytes; d.Omitted {
			d.Call.Input = ""
		}
	case d.RunID != "":
		if d.Run, err = readRun(ctx, conn, runByID, key, d.RunID); err != nil || d.Run == nil {
			return d, err
		}
		if d.Omitted = len(d.Run.Outcome.Output) > c.MaxBytes; d.Omitted {
			d.Run.Outcome.Output = ""
		}
	}
	return d, nil
}

// UpdateDeliveries implements store.Outbox.
func (s outbox) UpdateDeliveries(
	ctx context.Context, refs []store.DeliveryRef, now session.Millis, decide func(*session.Delivery),
) (changed int, err error) {
	err = s.committer.Do(ctx, nil, 0, func(ctx context.Context, c *connection) (refused, err error) {
		changed = 0
		for _, r := range refs {
			var d session.Delivery
			found, err := c.queryRow(ctx, `SELECT `+deliveryColumns.Select("d")+` FROM deliveries d
				WHERE d.tenant = ? AND d.number = ? AND d.claim_id = ? AND d.executor_id <> ''`, arguments(r.Tenant, r.Number, r.ClaimID),
				deliveryColumns.Destinations(nil, &d)...)
			if err != nil {
				return nil, err
			}
			if !found {
				continue
			}
			decide(&d)
			changed++
			if _, err := c.exec(ctx, updateDelivery, table.Deliveries.Small.Values(arguments(r.Tenant, r.Number), &d)...); err != nil {
				return nil, err
			}
			due, condition := now, `due_at > ?5`
			if d.Status == session.DeliveryPending {
				due, condition = d.DueAt, `due_at < ?5`
			}
			if _, err := c.exec(ctx, `UPDATE deliveries SET due_at = ?5 WHERE tenant = ?1 AND subscription_id = ?2 AND session_id = ?3
				AND status = 'pending' AND number > ?4 AND `+condition, r.Tenant, d.SubscriptionID, d.SessionID, d.Number, int64(due)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	return changed, wrap(ctx, err, "update %d deliveries", len(refs))
}

// Deliveries implements store.Outbox.
func (s outbox) Deliveries(ctx context.Context, tenant string, q store.DeliveryQuery) (page []session.Delivery, err error) {
	err = s.read(ctx, func(c *connection) error {
		page = nil
		return c.forEach(ctx, `SELECT `+deliveryColumns.Select("d")+` FROM deliveries d
			WHERE d.tenant = ?1 AND (?2 = '' OR d.subscription_id = ?2) AND (?3 = '' OR d.status = ?3) AND d.number < ?4
			ORDER BY d.number DESC LIMIT 0 + ?5`, arguments(tenant, q.SubscriptionID, string(q.Status), store.OrLast(q.Before), q.Limit),
			func(row scanner) error {
				var d session.Delivery
				err := row.Scan(deliveryColumns.Destinations(nil, &d)...)
				page = append(page, d)
				return err
			})
	})
	return page, wrap(ctx, err, "list the deliveries of tenant %q", tenant)
}

// Replay implements store.Outbox.
func (s outbox) Replay(ctx context.Context, tenant, subscriptionID string, number int64, now session.Millis) (replayed int64, err error) {
	err = s.committer.Do(ctx, nil, 0, func(ctx context.Context, c *connection) (refused, err error) {
		replayed, err = c.exec(ctx, fmt.Sprintf(`UPDATE deliveries SET status = 'pending', due_at = ?4, first_at = 0, attempts = 0, ended_at = 0,
			expires_at = ?4 + %d WHERE tenant = ?1 AND subscription_id = ?2
			AND CASE WHEN ?3 = 0 THEN status = 'dead' ELSE number = ?3 AND status <> 'pending' END`, session.MaxDeliveryAge),
			tenant, subscriptionID, number, int64(now))
		return nil, err
	})
	return replayed, wrap(ctx, err, "replay deliveries to webhook %q", subscriptionID)
}

// ExpireDeliveries implements store.Outbox.
func (s outbox) ExpireDeliveries(ctx context.Context, now session.Millis, most, limit int) (expired int64, err error) {
	err = s.committer.Do(ctx, nil, 0, func(ctx context.Context, c *connection) (refused, err error) {
		expired, err = c.exec(ctx, `DELETE FROM deliveries WHERE number IN
			(SELECT number FROM deliveries WHERE expires_at <= ?1 ORDER BY expires_at LIMIT 0 + ?2)`, int64(now), limit)
		if err != nil {
			return nil, err
		}
		if expired > 0 {
			s.erased.Store(true)
		}
		dropped, err := c.exec(ctx, `DELETE FROM deliveries WHERE number IN (SELECT number FROM (SELECT number, row_number() OVER
			(PARTITION BY tenant, subscription_id ORDER BY number DESC) AS place FROM deliveries WHERE status <> 'delivered')
			WHERE place > ?1 LIMIT 0 + ?2)`,
			most, limit)
		expired += dropped
		return nil, err
	})
	return expired, wrap(ctx, err, "expire deliveries")
}

// OutboxBacklog implements store.Outbox.
func (s outbox) OutboxBacklog(ctx context.Context, tenant string, most int64) (b store.OutboxBacklog, err error) {
	const of = ` FROM deliveries WHERE (?1 = '' OR tenant = ?1) AND status = `
	err = s.read(ctx, func(c *connection) error {
		if _, err := c.queryRow(ctx, `SELECT count(*), coalesce(min(happened_at), 0) FROM (SELECT happened_at`+of+`'pending' LIMIT 0 + ?2)`,
			arguments(tenant, most), &b.Pending, (*int64)(&b.Oldest)); err != nil {
			return err
		}
		_, err := c.queryRow(ctx, `SELECT count(*) FROM (SELECT 1`+of+`'dead' LIMIT 0 + ?2)`, arguments(tenant, most), &b.Dead)
		return err
	})
	return b, wrap(ctx, err, "count deliveries")
}
