package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

var (
	subscriptionColumns = table.Subscriptions.All()
	deliveryColumns     = table.Deliveries.All()
	deliveryUpdateInput = columnsOf(&table.Deliveries, slices.Concat(table.Deliveries.Key, table.Deliveries.Small))
)

// insertDeliveries inserts a delivery of each event v for each subscription that wants it. OFFSET 0 keeps the order of the
// events, and so that of their numbers.
func insertDeliveries(v string) string {
	return fmt.Sprintf(`INSERT INTO deliveries (tenant, subscription_id, session_id, event_id, kind, root_id, run_id, call_id, agent_type,
			happened_at, facts, status, due_at, expires_at)
		SELECT v.tenant, s.subscription_id, v.session_id, v.event_id, v.kind, v.root_id, v.run_id, v.call_id, v.agent_type,
			v.happened_at, v.facts, 'pending', v.happened_at, v.happened_at + %d
		FROM %s CROSS JOIN LATERAL (SELECT subscription_id FROM subscriptions w WHERE w.tenant = v.tenant
			AND CASE WHEN w.kinds = '' THEN TRUE ELSE w.kinds::jsonb ? v.kind END
			AND CASE WHEN w.agents = '' THEN TRUE ELSE w.agents::jsonb ? v.agent_type END OFFSET 0) s`, session.MaxDeliveryAge, v)
}

// Claims, reports and replays run one after the other over all replicas, so each sees which deliveries are the first of
// their sessions. Their commits do not wait for the disk, since a lost one is a repetition.
var lockOutbox = prepared(`SELECT pg_advisory_xact_lock(hashtext('holdfast outbox'), hashtext(current_schema()))`)

var putSubscription = prepared(func() string {
	in := columnsOf(&table.Subscriptions, subscriptionColumns)
	given := fmt.Sprintf(`(SELECT %s) AS v (%s) WHERE EXISTS (SELECT 1 FROM subscriptions s WHERE s.tenant = v.tenant
			AND s.subscription_id = v.subscription_id)
		OR (SELECT count(*) FROM subscriptions s WHERE s.tenant = v.tenant) < $%d::bigint`, in.placeholders(1, ""), in.names(), len(in)+1)
	return insertText(in, table.Subscriptions.Name, given) +
		` ON CONFLICT (tenant, subscription_id) DO UPDATE SET ` + excluded(&table.Subscriptions)
}())

// PutSubscription implements store.Outbox.
func (s outbox) PutSubscription(ctx context.Context, tenant string, sub session.Subscription, most int) error {
	w := rows{values: subscriptionColumns.Fields([]any{tenant}, &sub), count: 1}
	args, err := w.appendArguments(nil, true)
	if err != nil {
		return err
	}
	var written int64
	err = s.execute(ctx, func(p *pipeline) {
		p.exec(lockOutbox)
		p.count(putSubscription, &written, append(args, most)...)
	})
	if err == nil && written == 0 {
		err = store.SubscriptionsFull(most)
	}
	if err == nil {
		err = s.waitForWriters(ctx)
	}
	return wrap(ctx, err, "write webhook %q", sub.ID)
}

// writersTimeout is above the time limit of a statement.
const writersTimeout = statementTimeout + 5*time.Second

// A statement locks its tables before it takes its snapshot. So a transaction that writes events and does not see the last change of
// the subscriptions holds its lock of deliveries since before.
var (
	findWriters = prepared(`SELECT coalesce(array_agg(virtualtransaction), '{}') FROM pg_locks WHERE ` + writersOfDeliveries)
	leftWriters = prepared(`SELECT count(*) FROM pg_locks WHERE ` + writersOfDeliveries + ` AND virtualtransaction = ANY ($1::text[])`)
)

const writersOfDeliveries = `locktype = 'relation' AND relation = 'deliveries'::regclass AND mode = 'RowExclusiveLock' AND granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()`

// waitForWriters waits for the end of the transactions that may have read the subscriptions before their last change.
func (s outbox) waitForWriters(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, writersTimeout)
	defer cancel()
	var writers []string
	if err := s.query(within, findWriters, scanInto(&writers)); err != nil {
		return err
	}
	const pause = 5 * time.Millisecond
	for left := int64(len(writers)); left > 0; {
		select {
		case <-time.After(pause):
		case <-within.Done():
			return store.Unavailable(errors.New("a transaction that began before the change of a webhook takes too long"))
		}
		if err := s.query(within, leftWriters, scanInto(&left), writers); err != nil {
			return err
		}
	}
	return nil
}

// scanSubscription scans the columns of a subscription.
func scanSubscription(take func(*session.Subscription)) func(pgx.CollectableRow) error {
	return scanEach(subscriptionColumns.Destinations, take)
}

var (
	readSubscription = prepared(`SELECT ` + subscriptionColumns.Select("s") + ` FROM subscriptions s
		WHERE s.tenant = $1::text AND s.subscription_id = $2::text`)
	readSubscriptions = prepared(`SELECT ` + subscriptionColumns.Select("s") + ` FROM subscriptions s
		WHERE s.tenant = $1::text ORDER BY s.subscription_id`)
)

// Subscription implements store.Outbox.
func (s outbox) Subscription(ctx context.Context, tenant, id string) (found *session.Subscription, err error) {
	err = s.query(ctx, readSubscription, scanSubscription(func(sub *session.Subscription) { found = sub }), tenant, id)
	if err == nil && found == nil {
		err = store.SubscriptionNotFound(id)
	}
	return found, wrap(ctx, err, "read webhook %q", id)
}

// Subscriptions implements store.Outbox.
func (s outbox) Subscriptions(ctx context.Context, tenant string) (all []session.Subscription, err error) {
	err = s.query(ctx, readSubscriptions, scanSubscription(func(sub *session.Subscription) { all = append(all, *sub) }), tenant)
	return all, wrap(ctx, err, "read the webhooks of tenant %q", tenant)
}

var (
	deleteSubscription = prepared(`DELETE FROM subscriptions WHERE tenant = $1::text AND subscription_id = $2::text`)
	deleteOfTenant     = prepared(`DELETE FROM subscriptions WHERE tenant = $1::text`)
	deleteDeliveries   = prepared(`DELETE FROM deliveries d USING (SELECT tenant, number FROM deliveries
			WHERE tenant = $1::text AND subscription_id = $2::text ORDER BY number LIMIT $3::bigint) old
		WHERE d.tenant = old.tenant AND d.number = old.number`)
	deleteAllDeliveries = prepared(`DELETE FROM deliveries d USING (SELECT tenant, number FROM deliveries
			WHERE tenant = $1::text ORDER BY number LIMIT $2::bigint) old
		WHERE d.tenant = old.tenant AND d.number = old.number`)
)

// deletedAtOnce bounds the deliveries that one statement deletes.
const deletedAtOnce = 5000

// DeleteSubscription implements store.Outbox. It deletes the deliveries when no transaction can write more.
func (s outbox) DeleteSubscription(ctx context.Context, tenant, id string) (bool, error) {
	var gone int64
	err := s.execute(ctx, func(p *pipeline) { p.count(deleteSubscription, &gone, tenant, id) })
	if err == nil && gone > 0 {
		if err = s.waitForWriters(ctx); err == nil {
			err = s.deleteAll(ctx, deleteDeliveries, tenant, id)
		}
	}
	return gone > 0, wrap(ctx, err, "delete webhook %q", id)
}

// DropOutbox implements store.Outbox.
func (s outbox) DropOutbox(ctx context.Context, tenant string) error {
	var gone int64
	err := s.execute(ctx, func(p *pipeline) { p.count(deleteOfTenant, &gone, tenant) })
	if err == nil && gone > 0 {
		err = s.waitForWriters(ctx)
	}
	if err == nil {
		err = s.deleteAll(ctx, deleteAllDeliveries, tenant)
	}
	return wrap(ctx, err, "delete the webhooks of tenant %q", tenant)
}

// deleteAll repeats a statement that deletes some deliveries until it finds none.
func (s outbox) deleteAll(ctx context.Context, some *statement, args ...any) error {
	for gone := int64(deletedAtOnce); gone == deletedAtOnce; {
		if err := s.execute(ctx, func(p *pipeline) { p.count(some, &gone, append(slices.Clone(args), deletedAtOnce)...) }); err != nil {
			return err
		}
	}
	return nil
}

var addDelivery = prepared(fmt.Sprintf(`INSERT INTO deliveries (tenant, subscription_id, session_id, event_id, kind, root_id,
		run_id, call_id, agent_type, happened_at, facts, status, due_at, expires_at)
	SELECT tenant, subscription_id, $3::text, $4::text, $5::text, '', '', '', $6::text, $7::bigint, $8::text, 'pending', $7, $7 + %d
	FROM subscriptions WHERE tenant = $1::text AND subscription_id = $2::text RETURNING number`, session.MaxDeliveryAge))

// AddDelivery implements store.Outbox.
func (s outbox) AddDelivery(ctx context.Context, tenant, subscriptionID, sessionID string, e session.Event) (number int64, err error) {
	err = s.execute(ctx, func(p *pipeline) {
		p.queue(addDelivery, []any{tenant, subscriptionID, sessionID, e.ID, string(e.Kind), e.AgentType, int64(e.At), e.Facts}, scanInto(&number))
	})
	if err == nil && number == 0 {
		err = store.SubscriptionNotFound(subscriptionID)
	}
	return number, wrap(ctx, err, "add a delivery to webhook %q", subscriptionID)
}

// pendingSubscriptions begins a statement: it finds the subscriptions with pending deliveries, one step of the index each.
const pendingSubscriptions = `WITH RECURSIVE busy (tenant, subscription_id) AS (
		(SELECT d.tenant, d.subscription_id FROM deliveries d WHERE d.status = 'pending' ORDER BY d.tenant, d.subscription_id LIMIT 1)
		UNION ALL
		SELECT n.tenant, n.subscription_id FROM busy b CROSS JOIN LATERAL (SELECT d.tenant, d.subscription_id FROM deliveries d
			WHERE d.status = 'pending' AND (d.tenant, d.subscription_id) > (b.tenant, b.subscription_id)
			ORDER BY d.tenant, d.subscription_id LIMIT 1) n
	)`

var (
	findDue = prepared(`SELECT EXISTS (SELECT 1 FROM subscriptions),
		EXISTS (SELECT 1 FROM deliveries WHERE status = 'pending' ORDER BY tenant, subscription_id, due_at LIMIT 1)`)

	releaseDeliveries = prepared(`UPDATE deliveries d SET executor_id = '', claim_id = '', due_at = $1::bigint
		WHERE d.executor_id <> '' AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = d.executor_id)`)

	claimDeliveries = prepared(pendingSubscriptions + `, due AS (
			SELECT d.tenant, d.number FROM busy b
			JOIN subscriptions s ON s.tenant = b.tenant AND s.subscription_id = b.subscription_id AND NOT s.paused
			CROSS JOIN LATERAL (SELECT count(*) AS sending FROM deliveries c WHERE c.tenant = b.tenant
				AND c.subscription_id = b.subscription_id AND c.executor_id <> '' AND c.due_at > $3::bigint) n
			CROSS JOIN LATERAL (SELECT d.tenant, d.number, n.sending + row_number() OVER (ORDER BY d.due_at, d.number) AS turn FROM deliveries d
				WHERE d.tenant = b.tenant AND d.subscription_id = b.subscription_id AND d.status = 'pending' AND d.due_at <= $3::bigint
					AND NOT EXISTS (SELECT 1 FROM deliveries e WHERE e.tenant = d.tenant AND e.subscription_id = d.subscription_id
						AND e.session_id = d.session_id AND e.status = 'pending' AND e.number < d.number)
				ORDER BY d.due_at, d.number LIMIT greatest($5::bigint - n.sending, 0)) d
			ORDER BY d.turn, b.tenant, b.subscription_id LIMIT $6::bigint
		)
		UPDATE deliveries d SET executor_id = $1::text, claim_id = $2::text, due_at = $4::bigint, attempts = d.attempts + 1,
			first_at = CASE WHEN d.first_at = 0 THEN $3::bigint ELSE d.first_at END
		FROM due WHERE d.tenant = due.tenant AND d.number = due.number
			AND EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = $1::text)`)

	ofClaim     = ` FROM deliveries d WHERE d.executor_id <> '' AND d.claim_id = $1::text`
	readClaimed = prepared(`SELECT d.tenant, s.url, s.secrets, ` + deliveryColumns.Select("d") + ` FROM deliveries d
		JOIN subscriptions s ON s.tenant = d.tenant AND s.subscription_id = d.subscription_id
		WHERE d.executor_id <> '' AND d.claim_id = $1::text ORDER BY d.number`)
	readClaimedSessions = prepared(`SELECT d.number, s.user_id, s.parent_id, s.status, s.metadata FROM (SELECT *` + ofClaim + `) d
		CROSS JOIN LATERAL (SELECT * FROM sessions s WHERE s.tenant = d.tenant AND s.session_id = d.session_id OFFSET 0) s`)
	readClaimedRuns = prepared(`SELECT d.number, octet_length(r.output) > $2::bigint,
			CASE WHEN octet_length(r.output) > $2::bigint THEN '' ELSE r.output END, ` + runListed.Select("r") + ` FROM (SELECT *` + ofClaim + `) d
		CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.tenant = d.tenant AND r.session_id = d.session_id AND r.run_id = d.run_id
			AND d.call_id = '' OFFSET 0) r`)
	readClaimedCalls = prepared(`SELECT d.number, octet_length(c.input) > $2::bigint,
			CASE WHEN octet_length(c.input) > $2::bigint THEN '' ELSE c.input END, c.tool_name, c.kind, c.created_at, c.deadline_at, c.answer,
			c.answered_at, c.answered_by, c.approvers FROM (SELECT *` + ofClaim + `) d
		CROSS JOIN LATERAL (SELECT * FROM calls c WHERE c.tenant = d.tenant AND c.root_id = d.root_id AND c.call_id = d.call_id OFFSET 0) c`)
)

// ClaimDeliveries implements store.Outbox. Without a pending delivery it takes one query of two index entries.
func (s outbox) ClaimDeliveries(ctx context.Context, c store.DeliveryClaim) (list []store.ClaimedDelivery, idle bool, err error) {
	var subscribed, pending bool
	var claimed int64
	err = s.query(ctx, findDue, scanInto(&subscribed, &pending))
	if err == nil && pending {
		err = s.execute(ctx, func(p *pipeline) {
			p.exec(commitWithoutWaiting)
			p.exec(lockOutbox)
			p.exec(releaseDeliveries, int64(c.Now))
			p.count(claimDeliveries, &claimed, c.ExecutorID, c.ClaimID, int64(c.Now), int64(c.Until), c.Each, c.Limit)
		})
	}
	if err != nil || claimed == 0 {
		return nil, !subscribed, wrap(ctx, err, "claim deliveries")
	}
	list, err = s.readClaim(ctx, c)
	return list, false, err
}

// readClaim reads claimed deliveries with what they tell.
func (s outbox) readClaim(ctx context.Context, c store.DeliveryClaim) ([]store.ClaimedDelivery, error) {
	var list []store.ClaimedDelivery
	at := map[int64]int{}
	// of scans the number first, then the other columns into places of its delivery.
	of := func(columns int, places func(*store.ClaimedDelivery) []any) func(pgx.CollectableRow) error {
		return func(row pgx.CollectableRow) error {
			var number int64
			first := make([]any, columns)
			first[0] = &number
			if err := row.Scan(first...); err != nil {
				return err
			}
			return row.Scan(append([]any{nil}, places(&list[at[number]])...)...)
		}
	}
	err := s.readRetrying(ctx, func(p *pipeline) {
		list = nil
		p.queue(readClaimed, []any{c.ClaimID}, func(row pgx.CollectableRow) error {
			var d store.ClaimedDelivery
			err := row.Scan(deliveryColumns.Destinations([]any{&d.Tenant, &d.URL, table.AsJSON(&d.Secrets)}, &d.Delivery)...)
			at[d.Number] = len(list)
			list = append(list, d)
			return err
		})
		p.queue(readClaimedSessions, []any{c.ClaimID}, of(5, func(d *store.ClaimedDelivery) []any {
			d.Session = &session.Session{}
			return []any{&d.Session.UserID, &d.Session.ParentID, (*string)(&d.Session.Status), table.AsJSON(&d.Session.Metadata)}
		}))
		p.queue(readClaimedRuns, []any{c.ClaimID, c.MaxBytes}, of(3+len(runListed), func(d *store.ClaimedDelivery) []any {
			d.Run = &session.Run{}
			return runListed.Destinations([]any{&d.Omitted, &d.Run.Outcome.Output}, d.Run)
		}))
		p.queue(readClaimedCalls, []any{c.ClaimID, c.MaxBytes}, of(11, func(d *store.ClaimedDelivery) []any {
			call := &session.Call{CallID: d.CallID}
			d.Call = call
			return []any{
				&d.Omitted, &call.Input, &call.ToolName, (*string)(&call.Kind), (*int64)(&call.CreatedAt), (*int64)(&call.DeadlineAt),
				(*string)(&call.Answer), (*int64)(&call.AnsweredAt), &call.AnsweredBy, (*string)(&call.Approvers),
			}
		}))
	})
	return list, wrap(ctx, err, "read claimed deliveries")
}

var (
	readReported = prepared(`SELECT d.tenant, ` + deliveryColumns.Select("d") + `
		FROM unnest($1::text[], $2::bigint[], $3::text[]) v (tenant, number, claim_id)
		JOIN deliveries d ON d.tenant = v.tenant AND d.number = v.number AND d.claim_id = v.claim_id WHERE d.executor_id <> ''`)
	updateDeliveries = forRows(deliveryUpdateInput, func(v string) string {
		var sets []string
		for _, c := range table.Deliveries.Small {
			sets = append(sets, c.Name+" = v."+c.Name)
		}
		return `UPDATE deliveries d SET ` + strings.Join(sets, ", ") + ` FROM ` + v + ` WHERE d.tenant = v.tenant AND d.number = v.number`
	})
	moveDeliveries = forRows(
		keyed("subscription_id text, number bigint, due_at bigint, later boolean"),
		func(v string) string {
			return `UPDATE deliveries d SET due_at = v.due_at FROM ` + v + ` WHERE d.tenant = v.tenant AND d.subscription_id = v.subscription_id
				AND d.session_id = v.session_id AND d.status = 'pending' AND d.number > v.number
				AND CASE WHEN v.later THEN d.due_at < v.due_at ELSE d.due_at > v.due_at END`
		},
	)
)

// UpdateDeliveries implements store.Outbox.
func (s outbox) UpdateDeliveries(
	ctx context.Context, refs []store.DeliveryRef, now session.Millis, decide func(*session.Delivery),
) (changed int, err error) {
	err = s.withConn(ctx, func(conn *pgx.Conn) (err error) {
		for range attempts {
			if changed, err = updateReported(ctx, conn, refs, now, decide); !isConflict(err) {
				break
			}
		}
		return asUnavailable(err)
	})
	return changed, wrap(ctx, err, "update %d deliveries", len(refs))
}

func updateReported(
	ctx context.Context, conn *pgx.Conn, refs []store.DeliveryRef, now session.Millis, decide func(*session.Delivery),
) (changed int, err error) {
	defer rollBack(ctx, conn)
	tenants, numbers, claims := make([]string, len(refs)), make([]int64, len(refs)), make([]string, len(refs))
	for i, r := range refs {
		tenants[i], numbers[i], claims[i] = r.Tenant, r.Number, r.ClaimID
	}
	var found []*session.Delivery
	var of []string // their tenants
	var p pipeline
	p.exec(begin)
	p.exec(commitWithoutWaiting)
	p.exec(lockOutbox)
	p.queue(readReported, []any{tenants, numbers, claims}, func(row pgx.CollectableRow) error {
		var tenant string
		d := &session.Delivery{}
		err := row.Scan(deliveryColumns.Destinations([]any{&tenant}, d)...)
		found, of = append(found, d), append(of, tenant)
		return err
	})
	if err := p.run(ctx, conn); err != nil {
		return 0, err
	}
	var updated, moved rows
	for i, d := range found {
		decide(d)
		updated.add(&of[i])
		updated.values = deliveryUpdateColumns.Fields(updated.values, d)
		later, due := d.Status == session.DeliveryPending, now
		if later {
			due = d.DueAt
		}
		if later || d.Attempts > 1 { // the next ones were moved with this one
			moved.addKey(&session.Key{Tenant: of[i], SessionID: d.SessionID}).more(d.SubscriptionID, d.Number, int64(due), later)
		}
	}
	if len(found) > 0 {
		p.each(updateDeliveries, &updated, nil)
	}
	if moved.count > 0 {
		p.each(moveDeliveries, &moved, nil)
	}
	p.exec(commit)
	return len(found), p.run(ctx, conn)
}

var deliveryUpdateColumns = slices.Concat(table.Deliveries.Key, table.Deliveries.Small)

// listDeliveries has the conditions as constants, so that each list uses its index.
func listDeliveries(ofSubscription bool, status session.DeliveryStatus) *statement {
	conditions := `d.tenant = $1::text AND d.number < $3::bigint`
	if ofSubscription {
		conditions += ` AND d.subscription_id = $2::text`
	} else {
		conditions += ` AND $2::text = ''`
	}
	if status != "" {
		conditions += ` AND d.status = '` + string(status) + `'`
	}
	return prepared(`SELECT ` + deliveryColumns.Select("d") + ` FROM deliveries d WHERE ` + conditions + `
		ORDER BY d.number DESC LIMIT $4::bigint`)
}

type deliveryList struct {
	ofSubscription bool
	status         session.DeliveryStatus
}

var deliveryLists = func() map[deliveryList]*statement {
	lists := map[deliveryList]*statement{}
	for _, status := range []session.DeliveryStatus{"", session.DeliveryPending, session.DeliveryDelivered, session.DeliveryDead} {
		for _, of := range []bool{false, true} {
			lists[deliveryList{of, status}] = listDeliveries(of, status)
		}
	}
	return lists
}()

// Deliveries implements store.Outbox.
func (s outbox) Deliveries(ctx context.Context, tenant string, q store.DeliveryQuery) (page []session.Delivery, err error) {
	list := deliveryLists[deliveryList{q.SubscriptionID != "", q.Status}]
	if list == nil {
		return nil, fmt.Errorf("there is no status %q of a delivery", q.Status)
	}
	err = s.query(ctx, list, scanEach(deliveryColumns.Destinations, func(d *session.Delivery) { page = append(page, *d) }),
		tenant, q.SubscriptionID, store.OrLast(q.Before), q.Limit)
	return page, wrap(ctx, err, "list the deliveries of tenant %q", tenant)
}

var (
	replayed = fmt.Sprintf(`UPDATE deliveries SET status = 'pending', due_at = $3::bigint, first_at = 0, attempts = 0, ended_at = 0,
		expires_at = $3::bigint + %d WHERE tenant = $1::text AND subscription_id = $2::text `, session.MaxDeliveryAge)
	replayOne = prepared(replayed + `AND number = $4::bigint AND status <> 'pending'`)
	replayAll = prepared(replayed + `AND $4::bigint = 0 AND status = 'dead'`)
)

// Replay implements store.Outbox.
func (s outbox) Replay(ctx context.Context, tenant, subscriptionID string, number int64, now session.Millis) (replayed int64, err error) {
	replay := replayOne
	if number == 0 {
		replay = replayAll
	}
	err = s.execute(ctx, func(p *pipeline) {
		p.exec(lockOutbox)
		p.count(replay, &replayed, tenant, subscriptionID, int64(now), number)
	})
	return replayed, wrap(ctx, err, "replay deliveries to webhook %q", subscriptionID)
}

var (
	expireDeliveries = prepared(`DELETE FROM deliveries d USING (SELECT tenant, number FROM deliveries WHERE expires_at <= $1::bigint
			ORDER BY expires_at LIMIT $2::bigint) old
		WHERE d.tenant = old.tenant AND d.number = old.number`)
	dropOldest = prepared(pendingSubscriptions + `, old AS (
			SELECT d.tenant, d.number FROM busy b CROSS JOIN LATERAL (SELECT d.tenant, d.number FROM deliveries d
				WHERE d.tenant = b.tenant AND d.subscription_id = b.subscription_id AND d.status <> 'delivered'
				ORDER BY d.number DESC OFFSET $1::bigint LIMIT $2::bigint) d
		)
		DELETE FROM deliveries d USING old WHERE d.tenant = old.tenant AND d.number = old.number`)
)

// ExpireDeliveries implements store.Outbox.
func (s outbox) ExpireDeliveries(ctx context.Context, now session.Millis, most, limit int) (int64, error) {
	var expired, dropped int64
	err := s.execute(ctx, func(p *pipeline) { p.count(expireDeliveries, &expired, int64(now), limit) })
	if err == nil {
		err = s.execute(ctx, func(p *pipeline) { p.count(dropOldest, &dropped, most, limit) })
	}
	return expired + dropped, wrap(ctx, err, "expire deliveries")
}

var countOutbox = prepared(`SELECT p.pending, p.oldest, x.dead FROM
	(SELECT count(*) AS pending, coalesce(min(happened_at), 0) AS oldest FROM (SELECT happened_at FROM deliveries
		WHERE status = 'pending' AND ($1::text = '' OR tenant = $1) LIMIT $2::bigint) few) p
	CROSS JOIN (SELECT count(*) AS dead FROM (SELECT 1 FROM deliveries
		WHERE status = 'dead' AND ($1::text = '' OR tenant = $1) LIMIT $2::bigint) few) x`)

// OutboxBacklog implements store.Outbox.
func (s outbox) OutboxBacklog(ctx context.Context, tenant string, most int64) (b store.OutboxBacklog, err error) {
	err = s.query(ctx, countOutbox, scanInto(&b.Pending, (*int64)(&b.Oldest), &b.Dead), tenant, most)
	return b, wrap(ctx, err, "count deliveries")
}
