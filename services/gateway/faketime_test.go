package gateway_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// bubble runs a test under fake time, with gateway, services and client on one in-memory network.
func bubble(t *testing.T, test func(t *testing.T, w *World, client *http.Client), change ...func(*gateway.Config)) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t)
		c := gateway.Config{}
		if err := config.Load(&c, nil); err != nil {
			t.Fatal(err)
		}
		c.StateAddress, c.StreamAddress, c.InsecureNoAuth, c.DefaultAgent = StateAddress, StreamAddress, true, "demo"
		for _, f := range change {
			f(&c)
		}
		service, err := gateway.New(t.Context(), c, gateway.Peers{Network: w.Network, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		listener, err := w.Network.Listen(t.Context(), "gateway")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- service.Serve(ctx, listener, time.Second) }()
		// Each request has its own connection: a deadline of the network may fire after it was cleared, in the next request.
		transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return w.Network.DialContext(ctx, "gateway")
		}}
		t.Cleanup(func() {
			transport.CloseIdleConnections()
			cancel()
			if err := <-served; err != nil {
				t.Error(err)
			}
			if err := service.Close(); err != nil {
				t.Error(err)
			}
		})
		test(t, w, &http.Client{Transport: transport})
	})
}

func post(t *testing.T, client *http.Client, body string) *reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/chat", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return &reply{response}
}

func TestAQuietStreamCarriesHeartbeats(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *World, client *http.Client) {
		response := post(t, client, chatBody("s1", "hi"))
		run := w.AwaitRun(t, "default", "s1", nil)
		run.Show(1, Started(), StepStarted(), Text("One"))
		began := time.Now()
		lines := bufio.NewReader(response.Body)
		for beats := 0; beats < 10; {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line == ": keep-alive\n" {
				beats++
			}
		}
		if got := time.Since(began).Round(time.Second); got != 150*time.Second {
			t.Errorf("ten heartbeats took %v, want 150s", got)
		}
		run.Show(1, Text(" two"), StepCommitted(), Completed())
		run.Complete()
		stream := &reader{t, lines}
		if got := dataLines(stream.rest()); !strings.HasSuffix(got, "[DONE]\n") {
			t.Errorf("got %s", got)
		}
	})
}

func TestAStreamSurvivesAnOutageOfTheLog(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *World, client *http.Client) {
		stream := &reader{t, bufio.NewReader(post(t, client, chatBody("s1", "hi")).Body)}
		run := w.AwaitRun(t, "default", "s1", nil)
		run.Show(1, Started(), StepStarted(), Text("One"))
		stream.until("One")
		for range 3 {
			w.Stream.SetUnavailable(true)
			time.Sleep(5 * time.Minute)
			w.Stream.SetUnavailable(false)
			time.Sleep(5 * time.Second)
		}
		run.Show(1, StepCommitted(), Completed())
		run.Complete()
		if got := dataLines(stream.rest()); !strings.HasSuffix(got, "[DONE]\n") {
			t.Errorf("got %s", got)
		}
	})
}

func TestAReplayIsGivenForTenMinutes(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]int{9 * time.Minute: http.StatusOK, 11 * time.Minute: http.StatusNoContent} {
		bubble(t, func(t *testing.T, w *World, client *http.Client) {
			response := post(t, client, chatBody("s1", "hi"))
			run := w.AwaitRun(t, "default", "s1", nil)
			_ = response.Body.Close()
			synctest.Wait()
			run.Complete()
			time.Sleep(wait)
			if got := resume(t, client).StatusCode; got != want {
				t.Errorf("after %v: got %d, want %d", wait, got, want)
			}
		})
	}
}

// resume resumes the stream of s1.
func resume(t *testing.T, client *http.Client) *reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/chat/s1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return &reply{response}
}

func TestAClientThatStopsReadingIsCut(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *World, client *http.Client) {
		response := post(t, client, chatBody("s1", "hi")) // its body is not read
		run := w.AwaitRun(t, "default", "s1", nil)
		run.Show(1, Started(), StepStarted())
		for range 200 {
			run.Show(1, Text(strings.Repeat("x", 10<<10)))
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := w.Stream.OpenReads(); got != 0 {
			t.Errorf("%d calls are open", got)
		}
		_ = response.Body.Close()
	})
}

// nearlyAsLong is how many calls fail in an outage of nine seconds.
const nearlyAsLong = 9

func TestTheCallsOfOneRequestShareOneOutageLimit(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *World, client *http.Client) {
		for _, tc := range []struct {
			name        string
			first, more int // failed calls at first, and before the conversation is sent
			status      int
		}{
			{"two short absences", 5, 5, http.StatusOK},
			{"two that are too long together", nearlyAsLong, nearlyAsLong, http.StatusServiceUnavailable},
		} {
			w.State.FailNext(tc.first)
			w.State.HoldStarts(func(r *statev1.StartRunRequest) {
				if len(r.GetHistory()) > 0 { // the session is unknown
					w.State.HoldStarts(nil)
					w.State.FailNext(tc.more)
				}
			})
			began := time.Now()
			response := post(t, client, postOf(strings.ReplaceAll(tc.name, " ", "-"), imported()...))
			if got := time.Since(began); response.StatusCode != tc.status || got > 13*time.Second {
				t.Errorf("%s: got %d after %v, want %d within about ten seconds", tc.name, response.StatusCode, got, tc.status)
			}
			_ = response.Body.Close()
			w.State.FailNext(0)
		}
	})
}

func TestADeliveryWaitsForEachOutageAnew(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *World, client *http.Client) {
		w.State.FailNext(nearlyAsLong)
		stream := &reader{t, bufio.NewReader(post(t, client, chatBody("s1", "hi")).Body)}
		w.State.FailNext(7)
		playAsk(w.AwaitRun(t, "default", "s1", nil), 1, "c1")
		if got := dataLines(stream.rest()); !strings.HasSuffix(got, "[DONE]\n") {
			t.Errorf("got %s", got)
		}
	})
}

// slowly sends the body in pieces of 64 KiB, one each 5 seconds, and stops after the first most bytes.
func slowly(t *testing.T, client *http.Client, path, body string, most int) *reply {
	t.Helper()
	from, to := io.Pipe()
	go func() {
		for piece := range slices.Chunk([]byte(body[:most]), 64<<10) {
			time.Sleep(5 * time.Second)
			if _, err := to.Write(piece); err != nil {
				return
			}
		}
		if most == len(body) {
			_ = to.Close()
		}
	}()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+path, from)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = response.Body.Close(), from.Close() })
	return &reply{response}
}

func TestASlowUploadIsReadWhileItGoesOn(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *World, client *http.Client) {
		data := photo(2 << 20)
		for path, body := range map[string]string{"/chat": chatOf("s1", photoMessage("m1", "look", pngURL(data))), "/files": string(data)} {
			began := time.Now()
			if whole := slowly(t, client, path, body, len(body)); whole.StatusCode != http.StatusOK || time.Since(began) < 2*time.Minute {
				t.Errorf("%s: got %d after %v, want the upload taken", path, whole.StatusCode, time.Since(began))
			}
			began = time.Now()
			wantFault(t, slowly(t, client, path, body, 300<<10), http.StatusBadRequest, "BODY_INVALID")
			if took := time.Since(began); took > 2*time.Minute {
				t.Errorf("%s: a stalled upload was refused after %v", path, took)
			}
		}
	})
}
