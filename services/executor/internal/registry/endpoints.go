package registry

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/pkg/webhook"
	"github.com/holdfast-run/holdfast/services/executor/internal/agents"
	"github.com/holdfast-run/holdfast/services/executor/internal/endpoint"
)

// Waits for descriptions.
const (
	defaultPoll      = 30 * time.Second
	firstDescription = 5 * time.Second        // while the agents are read for the first time
	firstPause       = 250 * time.Millisecond // before an endpoint without a description is asked again; it doubles up to the interval
)

// endpointHosts allows the hosts of endpoints in files.
func (c AgentsConfig) endpointHosts() outbound.Policy {
	return outbound.Policy{
		Hosts: c.EndpointHosts, HostsVariable: "HOLDFAST_EXECUTOR_ENDPOINT_HOSTS",
		Private: c.EndpointPrivateHosts, PrivateVariable: "HOLDFAST_EXECUTOR_ENDPOINT_PRIVATE_HOSTS",
	}
}

// endpoints is a pool of endpoints: one for each configuration, shared by all sets of agents that use it. Safe for concurrent
// use.
type endpoints struct {
	mu   sync.Mutex
	list []*followed

	added   chan struct{} // has a token when an endpoint is not followed yet
	changed chan struct{} // has a token when a description has changed
}

func newEndpoints() *endpoints {
	return &endpoints{added: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
}

// notify puts a token into a channel, unless it has one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// settings are how an endpoint is reached, with resolved secrets. They are compared by value.
type settings struct {
	agents.Endpoint
	policy outbound.Policy
	calls  int
	poll   time.Duration
}

// followed is an endpoint whose description is asked for again and again.
type followed struct {
	all      *endpoints
	settings settings
	client   *endpoint.Client
	gone     chan struct{} // closed when no set uses it

	// Guarded by the mu of all.
	sets      int
	following bool
	last      *endpoint.Description // nil before the first one
	failure   string                // why the last request has failed; empty if it has not
}

// use returns the endpoint of the settings for one more set. It asks a new endpoint for its description.
func (p *endpoints) use(ctx context.Context, s settings, log *slog.Logger) (*followed, error) {
	p.mu.Lock()
	i := slices.IndexFunc(p.list, func(e *followed) bool { return reflect.DeepEqual(e.settings, s) })
	if i >= 0 {
		p.list[i].sets++
		defer p.mu.Unlock()
		return p.list[i], nil
	}
	p.mu.Unlock()
	client, err := s.open(log)
	if err != nil {
		return nil, err
	}
	e := &followed{all: p, settings: s, client: client, gone: make(chan struct{}), sets: 1}
	first, cancel := context.WithTimeout(ctx, firstDescription)
	defer cancel()
	e.ask(first, log)
	p.mu.Lock()
	p.list = append(p.list, e)
	p.mu.Unlock()
	notify(p.added)
	return e, nil
}

// open returns the client of an endpoint. Invalid (ENDPOINT_INVALID): the detail has one line for each mistake.
func (s settings) open(log *slog.Logger) (*endpoint.Client, error) {
	c := endpoint.Config{URL: s.URL, Headers: s.Headers, Policy: s.policy, Calls: s.calls}
	invalid := func(format string, args ...any) (*endpoint.Client, error) {
		return nil, fault.New(fault.Invalid, "ENDPOINT_INVALID", format, args...)
	}
	for _, text := range s.Secrets {
		secret, err := webhook.ParseSecret(text)
		if err != nil {
			return invalid("secrets: %s", detail(err))
		}
		c.Secrets = append(c.Secrets, secret)
	}
	if s.TLS == (agents.PEM{}) {
		return endpoint.New(c, endpoint.Peers{Log: log})
	}
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if s.TLS.Cert != "" || s.TLS.Key != "" {
		certificate, err := tls.X509KeyPair([]byte(s.TLS.Cert), []byte(s.TLS.Key))
		if err != nil {
			return invalid("tls: cert and key cannot be used: %v", err)
		}
		c.TLS.Certificates = []tls.Certificate{certificate}
	}
	if s.TLS.CA != "" {
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM([]byte(s.TLS.CA)) {
			return invalid("tls: ca has no certificate in the format PEM")
		}
	}
	return endpoint.New(c, endpoint.Peers{Log: log})
}

// release ends the use by one set.
func (e *followed) release() {
	e.all.mu.Lock()
	defer e.all.mu.Unlock()
	if e.sets--; e.sets > 0 {
		return
	}
	e.all.list = slices.DeleteFunc(e.all.list, func(other *followed) bool { return other == e })
	close(e.gone)
	e.client.Close() // runs with its agents still reach it
}

// described returns the endpoint with its last description.
func (e *followed) described() agents.Described {
	e.all.mu.Lock()
	defer e.all.mu.Unlock()
	d := agents.Described{Client: e.client}
	if e.last != nil {
		d.Data = e.last.Data
	}
	return d
}

// problem says why there is no current description; "" if there is.
func (e *followed) problem() string {
	e.all.mu.Lock()
	defer e.all.mu.Unlock()
	switch {
	case e.failure == "":
		return ""
	case e.last != nil:
		return e.failure + "; its last description is served"
	}
	return e.failure
}

// ask asks for the description, and reports whether it has changed. It logs the first failure and the end of failures.
func (e *followed) ask(ctx context.Context, log *slog.Logger) (changed bool) {
	e.all.mu.Lock()
	former, before := e.last, e.failure
	e.all.mu.Unlock()
	now, err := e.client.Describe(ctx, former)
	failure := ""
	if err != nil {
		failure = detail(err)
	}
	switch {
	case err != nil && ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return false
	case failure != "" && failure != before:
		log.WarnContext(ctx, "an endpoint does not describe its agents", "endpoint", e.client.Name(), "error", failure)
	case failure == "" && before != "":
		log.InfoContext(ctx, "the endpoint describes its agents again", "endpoint", e.client.Name())
	}
	e.all.mu.Lock()
	defer e.all.mu.Unlock()
	e.failure = failure
	if err != nil {
		return false
	}
	e.last = now
	return former == nil || string(former.Data) != string(now.Data)
}

// close closes idle connections.
func (p *endpoints) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.list {
		e.client.Close()
	}
}

// run follows all endpoints until ctx ends.
func (p *endpoints) run(ctx context.Context, log *slog.Logger) {
	var following sync.WaitGroup
	defer following.Wait()
	for {
		for _, e := range p.unfollowed() {
			following.Go(func() { e.follow(ctx, log) })
		}
		select {
		case <-p.added:
		case <-ctx.Done():
			return
		}
	}
}

// unfollowed returns the endpoints that nobody follows yet. The caller does.
func (p *endpoints) unfollowed() (list []*followed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.list {
		if !e.following {
			e.following = true
			list = append(list, e)
		}
	}
	return list
}

// follow asks for the description until ctx ends or nobody uses the endpoint.
func (e *followed) follow(ctx context.Context, log *slog.Logger) {
	defer func() {
		e.all.mu.Lock()
		e.following = false // another executor of the process may go on
		e.all.mu.Unlock()
		notify(e.all.added)
	}()
	pause := firstPause
	for {
		wait := e.settings.poll
		if e.problem() != "" {
			wait = min(pause, wait)
			pause = 2 * wait
		} else {
			pause = firstPause
		}
		timer := time.NewTimer(wait - time.Duration(rand.Float64()*float64(wait)/10)) // executors that start together spread
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		case <-e.gone:
			timer.Stop()
			return
		}
		if e.ask(ctx, log) {
			notify(e.all.changed)
		}
	}
}

// describeAll returns the endpoints that the configuration names. Invalid (CONFIG_INVALID).
func (l *loader) describeAll(ctx context.Context) ([]agents.Described, error) {
	urls := splitPaths(l.config.Endpoints)
	found := make([]agents.Described, len(urls))
	failures := make([]error, len(urls))
	var asking sync.WaitGroup
	for i, address := range urls {
		asking.Go(func() {
			s := settings{
				Endpoint: agents.Endpoint{URL: strings.TrimSpace(address), Secrets: l.config.EndpointSecrets},
				calls:    l.config.EndpointCalls, poll: cmp.Or(l.config.EndpointPoll, defaultPoll),
			}
			if u, err := url.Parse(s.URL); err == nil { // whoever sets the variable allows the host
				s.policy = outbound.Policy{Hosts: []string{u.Host}, Private: []string{u.Host}}
			}
			found[i], failures[i] = l.use(ctx, s)
			if failures[i] != nil {
				failures[i] = fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_EXECUTOR_ENDPOINTS: endpoint %d: %s", i+1,
					strings.ReplaceAll(detail(failures[i]), "secrets:", "HOLDFAST_EXECUTOR_ENDPOINT_SECRETS:"))
			}
		})
	}
	asking.Wait()
	return found, errors.Join(failures...)
}

// describeNamed returns an endpoint that a file names. Invalid (ENDPOINT_INVALID).
func (l *loader) describeNamed(ctx context.Context, e agents.Endpoint) (agents.Described, error) {
	if l.endpoints == nil {
		return agents.Described{}, errors.New("url: endpoints need files of agents that an executor follows")
	}
	s := settings{
		Endpoint: e, policy: l.config.endpointHosts(), calls: l.config.EndpointCalls, poll: cmp.Or(l.config.EndpointPoll, defaultPoll),
	}
	s.Secrets = slices.Clone(e.Secrets)
	for i, text := range e.Secrets {
		resolved, err := l.resolve(text)
		if err != nil {
			return agents.Described{}, fmt.Errorf("secrets: %w", err)
		}
		s.Secrets[i] = resolved
	}
	s.Headers = map[string]string{}
	for name, text := range e.Headers {
		resolved, err := l.resolve(text)
		if err != nil {
			return agents.Described{}, fmt.Errorf("headers.%s: %w", name, err)
		}
		s.Headers[name] = resolved
	}
	return l.use(ctx, s)
}

// resolve replaces each ${NAME} by the environment variable.
func (l *loader) resolve(text string) (string, error) {
	var out strings.Builder
	for {
		before, rest, more := strings.Cut(text, "${")
		out.WriteString(before)
		if !more {
			return out.String(), nil
		}
		name, behind, closed := strings.Cut(rest, "}")
		if !closed {
			return "", errors.New("${ is not closed")
		}
		value, err := l.lookupNamed(name)
		if err != nil {
			return "", fmt.Errorf("the environment variable %s %w", name, err)
		}
		out.WriteString(value)
		text = behind
	}
}

// use returns an endpoint for the new set.
func (l *loader) use(ctx context.Context, s settings) (agents.Described, error) {
	e, err := l.endpoints.use(ctx, s, l.log)
	if err != nil {
		return agents.Described{}, err
	}
	l.mu.Lock()
	l.followed = append(l.followed, e)
	l.mu.Unlock()
	return e.described(), nil
}
