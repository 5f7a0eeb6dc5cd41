// Package outbound creates HTTP clients for the hosts of a list only, for all requests that leave Holdfast for an address of an
// operator or an author of agents.
//
// A host is checked twice: its name before every request and redirect, and its address when the connection is
// made, after name resolution. Neither a redirect nor a name with an internal address can thus leave the list.
// Proxies in the environment are ignored.
package outbound

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Limits of connections.
const (
	dialTimeout      = 10 * time.Second
	idleTimeout      = 30 * time.Second
	maxIdlePerHost   = 16
	maxConnsPerHost  = 256
	directTimeout    = 5 * time.Second // of a connection and of its handshake
	directIdle       = time.Second
	maxResponseHead  = 64 << 10
	maxRedirects     = 5
	handshakeTimeout = 10 * time.Second
)

// Policy lists the permitted hosts.
type Policy struct {
	// Hosts are names, *.suffix for subdomains, or addresses, each with :port or for all ports. Names must
	// resolve to public addresses, except localhost. A listed address may be private.
	Hosts []string
	// Private are names, as in Hosts, with permission to resolve to any address.
	Private []string
	// Public permits every host beside them, over https and with public addresses.
	Public bool
	// HostsVariable and PrivateVariable are the environment variables with the lists, for errors; they may be empty.
	HostsVariable, PrivateVariable string
}

// Check returns Invalid (HOSTS_INVALID) for invalid entries.
func (p Policy) Check() error {
	for _, entry := range slices.Concat(p.Hosts, p.Private) {
		host, port := splitPort(entry)
		name := strings.TrimPrefix(host, "*.")
		_, notAddress := netip.ParseAddr(name)
		_, notPort := strconv.ParseUint(port, 10, 16)
		if name == "" || strings.ContainsAny(name, "*/@?# ") || notAddress != nil && strings.Contains(name, ":") || port != "" && notPort != nil {
			return fault.New(fault.Invalid, "HOSTS_INVALID",
				"%q is no host; write a name, *.suffix or an address, and :port behind it for one port", entry)
		}
	}
	return nil
}

// Allows returns why a URL must not be called, or nil.
func (p Policy) Allows(u *url.URL) error {
	if u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("the scheme %q is not allowed", u.Scheme)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	if matches(p.Hosts, u.Hostname(), port) || matches(p.Private, u.Hostname(), port) {
		return nil
	}
	if p.Public && u.Scheme != "https" {
		return fmt.Errorf("the host %q needs https", u.Host)
	}
	if !p.Public {
		return fmt.Errorf("the host %q is not on the list of allowed hosts%s", u.Host, addTo(p.HostsVariable))
	}
	return nil
}

// addTo says where to add a host.
func addTo(variable string) string {
	if variable == "" {
		return ""
	}
	return ": add it to " + variable
}

// matches reports whether an entry matches the host.
func matches(entries []string, host, port string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return slices.ContainsFunc(entries, func(entry string) bool {
		name, entryPort := splitPort(strings.ToLower(entry))
		if entryPort != "" && entryPort != port {
			return false
		}
		if suffix, ok := strings.CutPrefix(name, "*"); ok {
			return strings.HasSuffix(host, suffix) && len(host) > len(suffix)
		}
		if a, err := netip.ParseAddr(name); err == nil {
			b, err := netip.ParseAddr(host)
			return err == nil && a.Unmap() == b.Unmap()
		}
		return name == host
	})
}

// splitPort splits the port off an entry.
func splitPort(entry string) (host, port string) {
	if _, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
		return strings.Trim(entry, "[]"), ""
	}
	if host, port, err := net.SplitHostPort(entry); err == nil {
		return host, port
	}
	return entry, ""
}

// IsLoopback reports whether a host is this machine by its name.
func IsLoopback(host string) bool {
	address, _ := netip.ParseAddr(host) // the zero address for a name: no loopback
	return address.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}

// checkAddress returns why a host's resolved address must not be called, or nil.
func (p Policy) checkAddress(host, port string, address netip.Addr) error {
	address = address.Unmap()
	switch {
	case public(address), matches(p.Private, host, port), matches(p.Hosts, address.String(), port):
		return nil
	case strings.EqualFold(host, "localhost") && address.IsLoopback() && matches(p.Hosts, host, port):
		return nil
	}
	return fmt.Errorf("the host %q has a private address; private hosts must be named as such%s", host, addTo(p.PrivateVariable))
}

// nonPublic are the non-public networks unknown to netip.
var nonPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // shared by carriers
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("168.63.129.16/32"), // the host of an Azure machine
	netip.MustParsePrefix("::/96"),            // embeds IPv4, like the next ones
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("2001::/32"),
	netip.MustParsePrefix("fec0::/10"),
}

func public(a netip.Addr) bool {
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.Zone() != "" {
		return false
	}
	return !slices.ContainsFunc(nonPublic, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Client returns a client that enforces the policy. secret are names of headers to drop on a redirect to another
// host. Idle connections close after a while.
func (p Policy) Client(secret []string) *http.Client {
	return &http.Client{
		Transport: guard{p, p.transport()},
		CheckRedirect: func(next *http.Request, before []*http.Request) error {
			if len(before) > maxRedirects {
				return fmt.Errorf("there are more than %d redirects", maxRedirects)
			}
			next.Header.Del("Referer") // it would reveal the previous address with secrets in its query
			first := before[0].URL
			if first.Scheme == "https" && next.URL.Scheme != "https" {
				return fmt.Errorf("a redirect leads from https to %s", next.URL.Scheme)
			}
			if next.URL.Host != first.Host {
				for _, name := range secret {
					next.Header.Del(name)
				}
			}
			return p.Allows(next.URL)
		},
	}
}

// Direct returns a client for one server, with at most conns connections. It follows no redirects, does not decompress, and
// authenticates with the certificates of c; nil is the default of package tls.
//
// An idle connection is closed after a second: servers close idle ones after a few seconds, and a request that meets such an
// end may or may not have arrived.
func (p Policy) Direct(c *tls.Config, conns int) *http.Client {
	t := p.transport()
	t.DialContext = p.dial(directTimeout)
	t.TLSHandshakeTimeout = directTimeout
	t.TLSClientConfig = c
	t.DisableCompression = true
	t.MaxConnsPerHost = conns
	t.MaxIdleConnsPerHost = conns
	t.IdleConnTimeout = directIdle
	return &http.Client{
		Transport:     guard{p, t},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// guard refuses requests to other hosts.
type guard struct {
	policy Policy
	next   http.RoundTripper
}

func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := g.policy.Allows(r.URL); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // nothing was read
		}
		return nil, err
	}
	return g.next.RoundTrip(r)
}

// CloseIdleConnections is called by http.Client.
func (g guard) CloseIdleConnections() {
	if t, ok := g.next.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

func (p Policy) transport() *http.Transport {
	return &http.Transport{
		DialContext:            p.dial(dialTimeout),
		TLSHandshakeTimeout:    handshakeTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		MaxConnsPerHost:        maxConnsPerHost,
		MaxResponseHeaderBytes: maxResponseHead,
		ForceAttemptHTTP2:      true,
	}
}

// dial returns a function that checks each address of the host before it connects.
func (p Policy) dial(timeout time.Duration) func(ctx context.Context, network, target string) (net.Conn, error) {
	return func(ctx context.Context, network, target string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(target)
		if err != nil {
			return nil, err
		}
		dialer := net.Dialer{
			Timeout: timeout,
			ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
				resolved, err := netip.ParseAddrPort(address)
				if err != nil {
					return err
				}
				return p.checkAddress(host, port, resolved.Addr())
			},
		}
		return dialer.DialContext(ctx, network, target)
	}
}
