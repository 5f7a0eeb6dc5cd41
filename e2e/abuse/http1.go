package abuse

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
)

// All are the attacks. They share the large bodies, so that the attackers take little processor time.
func All() []Attack {
	bomb, answers := compressedBomb(), answersBody()
	return []Attack{
		{Name: "slow readers", Connections: 500, attack: slowReader},
		{
			Name:        "gzip bombs",
			Connections: 400,
			attack:      post("/holdfast.agent.v1.AgentService/Start", "Content-Type: application/proto\r\nContent-Encoding: gzip\r\n", bomb),
		},
		{Name: "huge bodies", Connections: 64, attack: hugeBody},
		{Name: "answers", Connections: 64, attack: post("/chat", "", answers)},
		{Name: "slow headers", Connections: 1000, attack: slowHeader},
		{Name: "slow bodies", Connections: 1000, attack: slowBody},
		{Name: "header floods", Connections: 400, attack: headerFlood},
		{Name: "continuations", Connections: 200, attack: continuations},
		{Name: "rapid resets", Connections: 20, attack: rapidResets},
		{Name: "idle connections", Connections: 10_000, attack: idle},
	}
}

// slowReader asks for many answers and reads nothing.
func slowReader(ctx context.Context, t Target, conn net.Conn) bool {
	request := []byte("GET /openapi.json HTTP/1.1\r\nHost: " + t.Address + "\r\n\r\n")
	for ctx.Err() == nil {
		if _, err := conn.Write(request); err != nil { // it waits once the gateway does not read any more
			return isCut(err)
		}
	}
	return false
}

// bombSize is the size of an inflated bomb in bytes. Compressed it has a thousandth.
const bombSize = 8 << 20

// compressedBomb returns a body that inflates a thousandfold.
func compressedBomb() []byte {
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	_, _ = w.Write(make([]byte, bombSize)) // to memory
	_ = w.Close()
	return bomb.Bytes()
}

// answersBody returns a message with answers to 80,000 calls.
func answersBody() []byte {
	answer := `{"type":"tool-a","toolCallId":"c","state":"output-available","output":1},`
	return []byte(`{"id":"s","message":{"id":"m","role":"assistant","parts":[` + strings.Repeat(answer, 80_000) + `1]}}`)
}

// post sends a request with a body.
func post(path, headers string, body []byte) func(context.Context, Target, net.Conn) bool {
	return func(_ context.Context, t Target, conn net.Conn) bool {
		return refused(conn, func(to io.Writer) error {
			_, err := fmt.Fprintf(
				to,
				"POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n%sContent-Length: %d\r\n\r\n%s",
				path,
				t.Address,
				t.Key,
				headers,
				len(body),
				body,
			)
			return err
		})
	}
}

// hugeBytes is more than the gateway reads of any body.
const hugeBytes = 64 << 20

// hugeBody sends a message without end.
func hugeBody(_ context.Context, t Target, conn net.Conn) bool {
	return refused(conn, func(to io.Writer) error {
		_, err := fmt.Fprintf(
			to,
			"POST /chat HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n{\"id\":\"s\",\"message\":\"",
			t.Address,
			t.Key,
			hugeBytes,
		)
		part := bytes.Repeat([]byte("x"), 64<<10)
		for sent := 0; err == nil && sent < hugeBytes; sent += len(part) {
			_, err = to.Write(part)
		}
		return err
	})
}

// slowHeader sends a header byte by byte.
func slowHeader(ctx context.Context, t Target, conn net.Conn) bool {
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: "+t.Address+"\r\n"); err != nil {
		return isCut(err)
	}
	return drip(ctx, conn, "X-Slow: 1\r\n")
}

// slowBody sends a body byte by byte.
func slowBody(ctx context.Context, t Target, conn net.Conn) bool {
	if _, err := fmt.Fprintf(conn, "POST /chat HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: 1000000\r\n\r\n", t.Address, t.Key); err != nil {
		return isCut(err)
	}
	return drip(ctx, conn, " ")
}

// headerFlood sends a request with more headers than any client.
func headerFlood(_ context.Context, t Target, conn net.Conn) bool {
	return refused(conn, func(to io.Writer) error {
		_, err := io.WriteString(to, "GET /healthz HTTP/1.1\r\nHost: "+t.Address+"\r\n"+strings.Repeat("X-A: b\r\n", 200_000)+"\r\n")
		return err
	})
}

// idle opens a connection and sends nothing.
func idle(_ context.Context, _ Target, conn net.Conn) bool {
	_, err := conn.Read(make([]byte, 1))
	return isCut(err)
}
