package auth

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Origins restricts the calling web pages. It is immutable.
type Origins struct {
	// Allowed are origins such as "https://app.example.com", or "*" for all.
	Allowed []string
	// Loopback is set if there are no API keys. A page of another site in the user's browser must
	// then not reach the gateway on loopback, neither across origins nor by a name that resolves to
	// 127.0.0.1. Pages that this machine serves, on any port, may.
	Loopback bool
	// Cookies is set if browsers may add a credential by themselves. Pages of other sites must then change nothing.
	Cookies bool
}

// Check refuses forbidden pages: Denied (HOST_REFUSED, ORIGIN_REFUSED).
//
// Browsers open WebSockets across origins without a preflight. So the origin of a handshake is
// checked even with API keys, in case a browser adds credentials by itself.
func (o Origins) Check(r *http.Request) error {
	if !o.Loopback {
		if Upgrade(r) || o.Cookies && r.Method != http.MethodGet && r.Method != http.MethodHead {
			return o.checkOrigin(r)
		}
		return nil
	}
	if !loopbackHost(r.Host) {
		return fault.New(
			fault.Denied,
			"HOST_REFUSED",
			"without API keys the gateway answers only to host names of the loopback, not to %.100q",
			r.Host,
		)
	}
	if err := o.checkOrigin(r); err != nil {
		return err
	}
	if r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "cross-site" && !isLink(r) && !isFile(r) {
		return fault.New(fault.Denied, "ORIGIN_REFUSED", "pages of other sites may not call this gateway")
	}
	return nil
}

// isLink reports whether the request opens a page, as a link does. A form of another site navigates as well, by POST, and
// would act in place of the user.
func isLink(r *http.Request) bool {
	return r.Header.Get("Sec-Fetch-Mode") == "navigate" && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// isFile reports whether the request reads a file, as an image of a page does. The id in the path is the right to it.
func isFile(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/files/")
}

func (o Origins) checkOrigin(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if origin == "" || sameOrigin(origin, r.Host) || o.Allows(origin) {
		return nil
	}
	return fault.New(
		fault.Denied,
		"ORIGIN_REFUSED",
		"pages of %.100q may not call this gateway; HOLDFAST_GATEWAY_CORS_ORIGINS lists the allowed origins",
		origin,
	)
}

// Allows reports whether pages of the origin may read answers.
func (o Origins) Allows(origin string) bool {
	return origin != "" && (slices.Contains(o.Allowed, "*") || slices.Contains(o.Allowed, origin) || o.Loopback && loopbackOrigin(origin))
}

// loopbackOrigin reports whether this machine serves the page.
func loopbackOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && loopbackHost(u.Host)
}

// CheckOrigins validates Allowed. Invalid (CORS_ORIGIN_INVALID).
func (o Origins) CheckOrigins() error {
	for _, origin := range o.Allowed {
		if origin == "*" && !o.Loopback && !o.Cookies {
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || u.Host == "" || origin != u.Scheme+"://"+u.Host {
			return fault.New(
				fault.Invalid,
				"CORS_ORIGIN_INVALID",
				"HOLDFAST_GATEWAY_CORS_ORIGINS: %q is no origin: write a scheme and a host, such as https://app.example.com (\"*\" only for callers with API keys or tokens)",
				origin,
			)
		}
	}
	return nil
}

// sameOrigin compares the hosts only: loopback has one scheme, and elsewhere a proxy may end TLS
// before the gateway.
func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, host)
}

func loopbackHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	address, err := netip.ParseAddr(name)
	return err == nil && address.Unmap().IsLoopback()
}

// Loopback reports whether only this machine can reach the address: "host:port" with a loopback IP
// address or localhost, also of a listener.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}
