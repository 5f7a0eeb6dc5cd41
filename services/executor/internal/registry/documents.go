package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/outbound"
)

// Limits of OpenAPI documents that are fetched.
const (
	fetchTimeout = 10 * time.Second
	maxKept      = 50 // documents
	// A missing document is fetched again after a pause, which doubles.
	firstFetchPause = 2 * time.Second
	maxFetchPause   = time.Minute
)

// documents fetches OpenAPI documents and keeps the last answer of each URL, for times in which its server is down. Safe for
// concurrent use.
type documents struct {
	mu      sync.Mutex
	kept    map[string][]byte
	order   []string // URLs in kept, the oldest first
	missing bool     // a document could not be had since the last call of next
	pause   time.Duration
	due     time.Time // when to fetch again; zero for never
}

func newDocuments() *documents { return &documents{kept: map[string][]byte{}} }

// fetch returns the document at a URL, or the last one if it cannot be fetched now. The error does not show the URL, which may have a
// secret.
func (d *documents) fetch(ctx context.Context, policy outbound.Policy, address string, limit int, log *slog.Logger) ([]byte, error) {
	data, err := download(ctx, policy, address, limit)
	d.mu.Lock()
	defer d.mu.Unlock()
	kept, known := d.kept[address]
	switch {
	case err == nil && !known:
		if len(d.order) == maxKept {
			delete(d.kept, d.order[0])
			d.order = slices.Delete(d.order, 0, 1)
		}
		d.order = append(d.order, address)
		d.kept[address] = data
	case err == nil:
		d.kept[address] = data
	case known:
		log.WarnContext(ctx, "an OpenAPI document cannot be fetched; its last version is used", "error", err)
		return kept, nil
	default:
		d.missing = true
	}
	return data, err
}

func download(ctx context.Context, policy outbound.Policy, address string, limit int) ([]byte, error) {
	u, err := url.Parse(address)
	if err != nil || u.User != nil || u.Host == "" {
		return nil, errors.New("the URL must be http or https, without credentials")
	}
	if err := policy.Allows(u); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, errors.New("the URL is none")
	}
	request.Header.Set("Accept", "application/json, application/yaml, */*;q=0.1")
	request.Header.Set("User-Agent", "holdfast")
	client := policy.Client(nil)
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("its server answers with HTTP status %d", response.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, int64(limit)+1))
	if err == nil && len(data) > limit {
		err = fmt.Errorf("the document has more than the %d bytes that are allowed", limit)
	}
	return data, err
}

// next is called after the agents were read. A missing document makes them be read again later.
func (d *documents) next(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.missing {
		d.pause, d.due = 0, time.Time{}
		return
	}
	d.missing = false
	d.pause = min(max(2*d.pause, firstFetchPause), maxFetchPause)
	d.due = now.Add(d.pause)
}

// isDue reports whether the agents are to be read again.
func (d *documents) isDue(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.due.IsZero() && !now.Before(d.due)
}
