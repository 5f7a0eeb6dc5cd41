package client_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/client"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// framed encodes a message as in a Connect stream.
func framed(t *testing.T, m *agentv1.StreamResponse) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

func TestAQuietWaitingRunIsFollowedForLongerThanThePatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		caughtUp := framed(t, &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_CaughtUp{CaughtUp: &agentv1.CaughtUp{}}})
		end := framed(t, &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_End{End: &agentv1.End{Status: "interrupted"}}})
		begin := time.Now()
		c := client.New(client.Config{URL: "http://gateway.test", HTTP: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, r.Body)
			body, out := io.Pipe()
			go func() {
				_, _ = out.Write(caughtUp)
				time.Sleep(30 * time.Second) // a proxy cuts quiet connections after this time
				if time.Since(begin) > 5*client.DefaultPatience {
					_, _ = out.Write(end)
				}
				out.CloseWithError(errors.New("cut"))
			}()
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/connect+proto"}}, Body: body, Request: r}, nil
		})}})
		var marks int
		var last *agentv1.StreamResponse
		for frame, err := range c.Follow(t.Context(), &agentv1.StreamRequest{SessionId: "s", RunId: "run-2"}) {
			if err != nil {
				t.Fatalf("given up after %v: %v", time.Since(begin), err)
			}
			if frame.GetCaughtUp() != nil {
				marks++
			}
			last = frame
		}
		if marks != 1 || last.GetEnd().GetStatus() != "interrupted" {
			t.Errorf("got %d marks and %v at the end", marks, last)
		}
	})
}

func TestThePatienceOfAWaitBeginsWithTheFirstFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		done, err := proto.Marshal(&agentv1.WaitRunResponse{Done: true, Run: &agentv1.Run{RunId: "run-1", Status: "completed", Output: `"42"`}})
		if err != nil {
			t.Fatal(err)
		}
		polls := 0
		c := client.New(client.Config{URL: "http://gateway.test", Patience: 40 * time.Second, HTTP: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(25 * time.Second) // a long poll
			if polls++; polls < 3 {
				return nil, errors.New("cut")
			}
			body := io.NopCloser(bytes.NewReader(done))
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/proto"}}, Body: body, Request: r}, nil
		})}})
		if answer, err := c.Wait(t.Context(), "s", "run-1"); err != nil || answer.Text != "42" {
			t.Errorf("got %v, %v after %d polls", answer, err, polls)
		}
	})
}
