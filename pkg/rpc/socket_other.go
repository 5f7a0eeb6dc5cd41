//go:build !linux || race

package rpc

import (
	"net"
	"syscall"
)

func socket(conn net.Conn) net.Conn { return conn }

// limitUnacknowledged does nothing: gRPC sets the limit on TCP connections.
func limitUnacknowledged(_, _ string, _ syscall.RawConn) error { return nil }
