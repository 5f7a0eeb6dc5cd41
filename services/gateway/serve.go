package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/holdfast-run/holdfast/pkg/rpc"
)

// leaveTimeout is how long handlers may take to return after they were cut.
const leaveTimeout = 5 * time.Second

// Serve serves HTTP/1.1 and unencrypted HTTP/2 on the listener until ctx ends or the listener
// fails. It then cuts the open streams, gives other requests the grace, and closes the listener. It
// returns nil after a clean shutdown.
//
// Invalid (INSECURE_LISTEN): see CheckListen.
func (s *Service) Serve(ctx context.Context, listener net.Listener, grace time.Duration) error {
	if address, tcp := listener.Addr().(*net.TCPAddr); tcp && s.peers.Authenticate == nil {
		if err := CheckListen("the address of the listener", address.String(), s.config); err != nil {
			return errors.Join(err, listener.Close())
		}
	}
	open := &connections{Listener: rpc.Sockets(listener), max: s.config.MaxConnections, log: s.peers.Log, now: s.peers.Now}
	server := s.newServer()
	server.ConnState = open.changed
	return s.serveUntil(ctx, server, open, grace)
}

// serveUntil serves the listener until ctx ends or the listener fails: see Serve.
func (s *Service) serveUntil(ctx context.Context, server *http.Server, listener net.Listener, grace time.Duration) error {
	served := make(chan error, 1) // room for the only result, so that the goroutine can end
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve on %s: %w", listener.Addr(), errors.Join(err, server.Close()))
	case <-ctx.Done():
	}
	err := s.shutDown(ctx, server, grace)
	<-served
	return err
}

// newServer bounds how long a client may hold a connection without sending or reading. WriteTimeout
// is for answers of the server itself: handlers time their own writes, and streams live longer.
// Calls over HTTP/2 have no heartbeats, so pings keep quiet ones alive and detect lost clients.
func (s *Service) newServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // for gRPC clients
	return &http.Server{
		Handler:           s.handler,
		Protocols:         protocols,
		ReadHeaderTimeout: s.config.HeaderTimeout,
		ReadTimeout:       s.config.ReadTimeout,
		WriteTimeout:      s.config.WriteTimeout,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: s.config.Heartbeat, WriteByteTimeout: s.config.WriteTimeout, MaxConcurrentStreams: s.config.MaxHTTP2Streams,
		},
		IdleTimeout:    s.config.IdleTimeout,
		MaxHeaderBytes: s.config.MaxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(s.peers.Log.Handler(), slog.LevelDebug),
	}
}

func (s *Service) shutDown(ctx context.Context, server *http.Server, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.streams.Drain()
	}()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close() // cuts the remaining requests
	}
	select {
	case <-drained:
		return nil
	case <-time.After(leaveTimeout):
		return errors.New("streams still run after their connections were closed")
	}
}
