package rpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/rpc"
)

func listen(t *testing.T, network rpc.Network, address string) net.Listener {
	t.Helper()
	l, err := network.Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestBytesReachTheListenersSide(t *testing.T) {
	t.Parallel()
	onEachConnection(t, func(t *testing.T, network rpc.Network, address string) {
		l := listen(t, network, address)
		echoed := make(chan error, 1)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				_, err = io.Copy(conn, io.LimitReader(conn, 5))
				conn.Close()
			}
			echoed <- err
		}()
		conn, err := network.DialContext(t.Context(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if err != nil || string(got) != "hello" {
			t.Errorf("read %q, %v, want hello", got, err)
		}
		if err := <-echoed; err != nil {
			t.Errorf("the other side: %v", err)
		}
	})
}

func TestAnAddressBelongsToOneListenerAtATime(t *testing.T) {
	t.Parallel()
	onEachConnection(t, func(t *testing.T, network rpc.Network, address string) {
		first := listen(t, network, address)
		address = first.Addr().String()
		if second, err := network.Listen(t.Context(), address); err == nil {
			second.Close()
			t.Fatal("a second Listen on a live address succeeded")
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := first.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close = %v, want net.ErrClosed", err)
		}
		listen(t, network, address)
	})
}

func TestASecondCloseLeavesTheSuccessorAlone(t *testing.T) {
	t.Parallel()
	network := rpc.NewMemory()
	first := listen(t, network, "state")
	first.Close()
	listen(t, network, "state")
	first.Close()
	if _, err := network.Listen(t.Context(), "state"); err == nil {
		t.Error("closing the first listener again freed the second one's name")
	}
}

func TestDialFailsAtOnceWhenNobodyListens(t *testing.T) {
	t.Parallel()
	onEachConnection(t, func(t *testing.T, network rpc.Network, address string) {
		l := listen(t, network, address)
		l.Close()
		if conn, err := network.DialContext(t.Context(), l.Addr().String()); err == nil {
			conn.Close()
			t.Error("Dial succeeded")
		}
	})
}

func TestTwoMemoriesDoNotMeet(t *testing.T) {
	t.Parallel()
	listen(t, rpc.NewMemory(), "state")
	if _, err := rpc.NewMemory().DialContext(t.Context(), "state"); err == nil {
		t.Error("Dial reached a listener of another memory")
	}
}

func TestADialThatNobodyAcceptsEndsWithItsContextOrListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := rpc.NewMemory()
		l := listen(t, network, "state")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := network.DialContext(ctx, "state"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial = %v, want its deadline", err)
		}
		time.AfterFunc(time.Minute, func() { l.Close() })
		if _, err := network.DialContext(t.Context(), "state"); err == nil {
			t.Error("Dial succeeded although the listener was closed")
		}
	})
}

func TestManyDialAtOnceInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := rpc.NewMemory()
		l, err := m.Listen(t.Context(), "many")
		if err != nil {
			t.Fatal(err)
		}
		const dials = 500
		var wg sync.WaitGroup
		wg.Go(func() {
			for range dials {
				conn, err := l.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = conn.Close() }()
			}
		})
		for range dials {
			wg.Go(func() {
				conn, err := m.DialContext(t.Context(), "many")
				if err != nil {
					t.Error(err)
					return
				}
				_ = conn.Close()
			})
		}
		wg.Wait()
		_ = l.Close()
	})
}
