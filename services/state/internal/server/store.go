package server

import (
	"cmp"
	"context"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Bounds of the writes to a private store, in bytes except for the number of keys. A request with maxStoreWrites fits into
// one message beside the largest result.
const (
	maxStoreValue  = 1 << 20
	maxStoreWrites = 8 << 20
	maxStoreKeys   = 1000
)

// ReadStore implements statev1.SessionServiceServer.
func (s *sessionService) ReadStore(ctx context.Context, r *statev1.ReadStoreRequest) (*statev1.ReadStoreResponse, error) {
	x := s.runner.read(r)
	key := x.key(r)
	query := store.StoreQuery{
		Keys: r.GetKeys(), Prefix: r.GetPrefix(), After: r.GetAfter(), MaxBytes: x.limits.PageBytes, KeysOnly: r.GetKeysOnly(),
		Limit: int(cmp.Or(number(x, "LIMIT_INVALID", "limit", r.GetLimit(), maxStoreKeys, "give 1 to 1000, or 0 for 100"), 100)),
	}
	if len(query.Keys) > maxStoreKeys {
		x.refuse("LIMIT_INVALID", "there are %d keys; the limit is %d: read them in several requests", len(query.Keys), maxStoreKeys)
	}
	for _, k := range query.Keys {
		x.storeKey(k)
	}
	for _, bound := range []string{query.Prefix, query.After} {
		if bound != "" {
			x.storeKey(bound)
		}
	}
	if x.err != nil {
		return nil, x.err
	}
	if err := s.grants.ofSession(ctx, key); err != nil {
		return nil, err
	}
	page, more, err := x.owned(s.store).StoreEntries(ctx, key, query)
	if err != nil {
		return nil, err
	}
	answer := &statev1.ReadStoreResponse{HasMore: more}
	for _, e := range page {
		answer.Entries = append(answer.Entries, &statev1.StoreEntry{Key: e.Key, Value: e.Value, Bytes: e.Bytes})
	}
	return answer, nil
}

// WriteStore implements statev1.SessionServiceServer.
func (s *sessionService) WriteStore(ctx context.Context, r *statev1.WriteStoreRequest) (*statev1.WriteStoreResponse, error) {
	x := s.runner.read(r)
	command := session.WriteStore{Key: x.key(r), Writes: x.storeWrites(r.GetWrites()), Limits: x.limits.sessionLimits()}
	if x.err != nil {
		return nil, x.err
	}
	if err := s.grants.ofMethod(ctx, command.Key); err != nil {
		return nil, err
	}
	size := session.StoreBytes(command.Writes)
	if err := s.admissions.checkBytes(ctx, command.Tenant, size); err != nil {
		return nil, err
	}
	write := onSession(x, command.Key, withoutAnswer{command})
	write.Intent = session.ActionStoreChanged
	if _, err := run(ctx, s.runner, write); err != nil {
		return nil, err
	}
	s.admissions.bytes.Add(command.Tenant, size)
	return &statev1.WriteStoreResponse{}, nil
}

// storeKey gives Invalid (STORE_KEY_INVALID).
func (x *reader) storeKey(key string) string {
	if p := nameProblem(key, session.MaxStoreKey); p != "" {
		x.refuse("STORE_KEY_INVALID", "the key %.80q of the store %s; a key has 1 to %d bytes of UTF-8 without control characters",
			key, p, session.MaxStoreKey)
	}
	return key
}

// storeWrites gives Invalid (STORE_KEY_INVALID, STORE_VALUE_INVALID, STORE_WRITES_INVALID) and TooLarge
// (STORE_VALUE_TOO_LARGE, STORE_WRITES_TOO_LARGE).
func (x *reader) storeWrites(given []*statev1.StoreWrite) []session.StoreWrite {
	if len(given) > maxStoreKeys {
		x.refuse("STORE_WRITES_INVALID", "%d keys of the store are written at once; the limit is %d", len(given), maxStoreKeys)
		return nil
	}
	var writes []session.StoreWrite
	seen := map[string]bool{}
	for _, g := range given {
		w := session.StoreWrite{Key: x.storeKey(g.GetKey())}
		switch op := g.GetOp().(type) {
		case *statev1.StoreWrite_Put:
			w.Op, w.Value = session.StorePut, op.Put
			if len(w.Value) > maxStoreValue {
				x.fail(tooLarge("STORE_VALUE_TOO_LARGE", "the value of a key of the store", len(w.Value), maxStoreValue))
			} else if !isJSON(w.Value) {
				x.refuse("STORE_VALUE_INVALID", "the value of the key %q of the store is not one JSON text", w.Key)
			}
		case *statev1.StoreWrite_Delete:
			w.Op = session.StoreDelete
			if !op.Delete {
				x.refuse("STORE_WRITES_INVALID", "the write to the key %q of the store has delete: false, which has no meaning", w.Key)
			}
		case *statev1.StoreWrite_Add:
			w.Op, w.Delta = session.StoreAdd, op.Add
		default:
			x.refuse("STORE_WRITES_INVALID", "the write to the key %q of the store has no op", w.Key)
		}
		if seen[w.Key] {
			x.refuse("STORE_WRITES_INVALID", "the key %q of the store is written twice; write each key once", w.Key)
		}
		if x.err != nil {
			return nil
		}
		seen[w.Key] = true
		writes = append(writes, w)
	}
	if size := session.StoreBytes(writes); size > maxStoreWrites {
		x.fail(tooLarge("STORE_WRITES_TOO_LARGE", "the writes to the store", int(size), maxStoreWrites))
	}
	return writes
}
