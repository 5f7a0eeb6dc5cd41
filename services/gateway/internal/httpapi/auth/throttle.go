package auth

import (
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// maxAddresses bounds the counted addresses. A further one replaces the address with the oldest failure.
const maxAddresses = 10_000

// Throttle counts wrong credentials by client address. It may be used by many goroutines. A nil *Throttle lets all pass.
type Throttle struct {
	limit  int
	window time.Duration
	now    func() time.Time

	mu    sync.Mutex
	known *lru.Cache[netip.Addr, *failures]
}

// failures are those of an address in one window.
type failures struct {
	count int
	until time.Time // the end of the window
}

// NewThrottle throttles an address after as many wrong credentials as the limit, until the end of the window that began
// with the first. Invalid (CONFIG_INVALID).
func NewThrottle(limit int, window time.Duration, now func() time.Time) (*Throttle, error) {
	if limit <= 0 || window <= 0 {
		return nil, fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_GATEWAY_AUTH_FAILURES and _AUTH_WINDOW must be above 0")
	}
	known, err := lru.New[netip.Addr, *failures](maxAddresses)
	return &Throttle{limit: limit, window: window, now: now, known: known}, err
}

// fail counts a wrong credential. Exhausted (AUTH_THROTTLED): the address has sent too many.
func (t *Throttle) fail(r *http.Request, log *slog.Logger) error {
	if t == nil {
		return nil
	}
	address := clientOf(r)
	now := t.now()
	t.mu.Lock()
	f, known := t.known.Get(address)
	if !known || !now.Before(f.until) {
		f = &failures{until: now.Add(t.window)}
		t.known.Add(address, f)
	}
	f.count++
	count, wait := f.count, f.until.Sub(now)
	t.mu.Unlock()
	if count <= t.limit {
		return nil
	}
	if count == t.limit+1 {
		log.WarnContext(
			r.Context(),
			"an address sends wrong credentials; more of them are answered with 429 for a time",
			"address",
			address,
			"failures",
			count,
			"wait",
			wait,
		)
	}
	return fault.New(fault.Exhausted, "AUTH_THROTTLED", "this address has sent more than %d wrong credentials (HOLDFAST_GATEWAY_AUTH_FAILURES); send a valid one, or wait", t.limit).
		WithRetryAfter(wait)
}

// clientPrefixBits is the usual length of the IPv6 prefix of a client.
const clientPrefixBits = 64

// clientOf returns the address of the peer: of an IPv6 client, its network.
func clientOf(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{} // not TCP
	}
	address := peer.Addr().Unmap().WithZone("")
	if address.Is6() {
		prefix, _ := address.Prefix(clientPrefixBits) // the length is valid
		return prefix.Addr()
	}
	return address
}
