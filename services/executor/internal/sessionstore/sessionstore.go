// Package sessionstore reads and writes the private stores of sessions at the state service.
package sessionstore

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/retry"
)

// pageLimit is the most entries of a page. The state service bounds its bytes.
const pageLimit = 1000

// Reader is an agent.StoreReader of one session.
type Reader struct {
	Sessions  statev1.SessionServiceClient
	Tenant    string
	SessionID string
	Caller    *statev1.Caller // nil for a run
	Granted   grpc.CallOption
	// MayBeMissing means that the store of a session that does not exist is empty.
	MayBeMissing bool
	// Timeout bounds one attempt. A read is repeated as package retry does. 0 makes one attempt without a limit of its own.
	Timeout time.Duration
}

// StoreEntries implements agent.StoreReader. The state service may need several pages for large values.
func (r Reader) StoreEntries(ctx context.Context, keys []string) (all []agent.StoreEntry, err error) {
	remaining := map[string]bool{}
	for _, key := range keys {
		remaining[key] = true
	}
	for more := true; more; {
		wanted := make([]string, 0, len(remaining))
		for key := range remaining {
			wanted = append(wanted, key)
		}
		var page []agent.StoreEntry
		page, more, err = r.read(ctx, &statev1.ReadStoreRequest{Keys: wanted})
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			delete(remaining, e.Key)
		}
		all = append(all, page...)
		more = more && len(page) > 0 && len(remaining) > 0
	}
	return all, nil
}

// StoreRange implements agent.StoreReader.
func (r Reader) StoreRange(ctx context.Context, q agent.StoreRange) (page []agent.StoreEntry, more bool, err error) {
	limit := pageLimit
	if q.Limit > 0 {
		limit = min(limit, q.Limit)
	}
	return r.read(ctx, &statev1.ReadStoreRequest{Prefix: q.Prefix, After: q.After, Limit: int32(limit)})
}

func (r Reader) read(ctx context.Context, request *statev1.ReadStoreRequest) (page []agent.StoreEntry, more bool, err error) {
	request.Tenant, request.SessionId, request.Caller = r.Tenant, r.SessionID, r.Caller
	var answer *statev1.ReadStoreResponse
	read := func(ctx context.Context) (err error) {
		answer, err = r.Sessions.ReadStore(ctx, request, r.Granted)
		return err
	}
	if r.Timeout > 0 {
		err = retry.Call(ctx, r.Timeout, read)
	} else {
		err = read(ctx)
	}
	if r.MayBeMissing && fault.ReasonOf(err) == "SESSION_NOT_FOUND" {
		return nil, false, nil
	}
	for _, e := range answer.GetEntries() {
		page = append(page, agent.StoreEntry{Key: e.GetKey(), Value: json.RawMessage(e.GetValue())})
	}
	return page, answer.GetHasMore(), err
}

// Writes returns the writes of a call for the state service.
func Writes(writes []agent.StoreWrite) []*statev1.StoreWrite {
	var list []*statev1.StoreWrite
	for _, w := range writes {
		out := &statev1.StoreWrite{Key: w.Key}
		switch w.Op {
		case agent.StorePut:
			out.Op = &statev1.StoreWrite_Put{Put: string(w.Value)}
		case agent.StoreDelete:
			out.Op = &statev1.StoreWrite_Delete{Delete: true}
		case agent.StoreAdd:
			out.Op = &statev1.StoreWrite_Add{Add: w.Delta}
		}
		list = append(list, out)
	}
	return list
}
