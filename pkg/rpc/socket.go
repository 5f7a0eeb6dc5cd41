package rpc

import "net"

// Socket returns a connection that behaves like conn, with cheaper reads and writes. It is conn itself unless conn is a TCP
// connection on Linux.
//
// A system call of a TCP connection never blocks: the runtime waits for the socket apart from it. But the runtime prepares
// each for the worst. The first one after a pause wakes the thread that watches for blocked calls (sysmon). As long as the
// process has work, this thread wakes up every 20 microseconds, and it takes the processor from a call of this length. In a
// service that handles one message at a time this cost a quarter of the processor time. Socket makes the system calls
// without the runtime's preparation.
func Socket(conn net.Conn) net.Conn { return socket(conn) }

// Sockets returns a listener whose connections are sockets: see Socket.
func Sockets(l net.Listener) net.Listener { return sockets{l} }

type sockets struct{ net.Listener }

func (l sockets) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return socket(conn), nil
}
