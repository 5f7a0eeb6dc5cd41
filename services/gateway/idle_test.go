package gateway_test

import (
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// idleReaders is the number of readers in BenchmarkIdleReaders.
const idleReaders = 5000

// BenchmarkIdleReaders measures the heap and stacks of an idle reader, and of one of a handler that
// only waits. Both include the client's end of the connection, which is in the same process.
func BenchmarkIdleReaders(b *testing.B) {
	b.Run("of a session", func(b *testing.B) {
		h := open(b, func(c *gateway.Config) { c.Heartbeat = time.Hour })
		run := h.begin(b, "s1", "hi", nil)
		run.Show(1, Started())
		openReaders(b, strings.TrimPrefix(h.url, "http://"), "caught-up")
	})
	b.Run("of nothing", func(b *testing.B) {
		var listening net.ListenConfig
		listener, err := listening.Listen(b.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})}
		go func() { _ = server.Serve(listener) }()
		b.Cleanup(func() { _ = server.Close() })
		openReaders(b, listener.Addr().String(), "200 OK")
	})
}

// openReaders opens the readers one after another, each up to the word, and reports their memory.
func openReaders(b *testing.B, address, word string) {
	for b.Loop() {
		heap, stacks := memoryInUse()
		conns := make([]net.Conn, 0, idleReaders)
		var dialer net.Dialer
		var first [4096]byte
		for range idleReaders {
			conn, err := dialer.DialContext(b.Context(), "tcp", address)
			if err != nil {
				b.Fatal(err)
			}
			conns = append(conns, conn)
			if _, err := fmt.Fprintf(conn, "GET /sse?sessionId=s1 HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
				b.Fatal(err)
			}
			for got := 0; !strings.Contains(string(first[:got]), word); {
				n, err := conn.Read(first[got:])
				if err != nil {
					b.Fatal(err)
				}
				got += n
			}
		}
		moreHeap, moreStacks := memoryInUse()
		b.ReportMetric((moreHeap-heap)/idleReaders, "heap-B/reader")
		b.ReportMetric((moreStacks-stacks)/idleReaders, "stack-B/reader")
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
}

func memoryInUse() (heap, stacks float64) {
	for range 5 { // each halves the stacks that are too large
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc), float64(m.StackInuse)
}
