package rpc_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
)

// keeper records received and sent messages.
type keeper struct {
	grpc_testing.UnimplementedTestServiceServer
	got    []proto.Message
	answer *grpc_testing.SimpleResponse
	item   *grpc_testing.StreamingOutputCallResponse
}

func (k *keeper) UnaryCall(_ context.Context, r *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	k.got = append(k.got, r)
	return k.answer, nil
}

func (k *keeper) FullDuplexCall(stream grpc_testing.TestService_FullDuplexCallServer) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		k.got = append(k.got, r)
		if err := stream.Send(k.item); err != nil {
			return err
		}
	}
}

func payload(text string) *grpc_testing.Payload {
	return &grpc_testing.Payload{Type: grpc_testing.PayloadType_COMPRESSABLE, Body: []byte(text)}
}

func TestMessagesWithinAProcessBelongToOneSideEach(t *testing.T) {
	t.Parallel()
	k := &keeper{answer: &grpc_testing.SimpleResponse{Payload: payload("answer")}, item: &grpc_testing.StreamingOutputCallResponse{Payload: payload("item")}}
	client := start(t, rpc.NewProcess(), "state", rpc.ServerConfig{}, k)
	request := &grpc_testing.SimpleRequest{Payload: payload("request"), ResponseStatus: &grpc_testing.EchoStatus{Code: 3}}
	answer, err := client.UnaryCall(t.Context(), request)
	if err != nil || !proto.Equal(answer, k.answer) || !proto.Equal(k.got[0], request) {
		t.Fatalf("UnaryCall = %v, %v; the handler got %v", answer, err, k.got)
	}
	stream, err := client.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	message := &grpc_testing.StreamingOutputCallRequest{
		Payload: payload("message"), ResponseParameters: []*grpc_testing.ResponseParameters{{Size: 1}, {Size: 2}},
	}
	message.ProtoReflect().SetUnknown([]byte{0xf8, 0x07, 0x01}) // a field of a later version
	sent := proto.Clone(message)
	if err := stream.Send(message); err != nil {
		t.Fatal(err)
	}
	item, err := stream.Recv()
	if err != nil || !proto.Equal(item, k.item) || !proto.Equal(k.got[1], sent) {
		t.Fatalf("Recv = %v, %v; the handler got %v, want %v", item, err, k.got[1], sent)
	}

	for _, body := range [][]byte{request.Payload.Body, answer.Payload.Body, message.Payload.Body, item.Payload.Body} {
		body[0] = '!'
	}
	message.ResponseParameters[0].Size = 7
	if got := k.got[0].(*grpc_testing.SimpleRequest).GetPayload().GetBody(); string(got) != "request" {
		t.Errorf("the caller has changed the handler's request: %s", got)
	}
	if !proto.Equal(k.got[1], sent) {
		t.Errorf("the caller has changed the handler's message: %v", k.got[1])
	}
	if a, i := k.answer.GetPayload().GetBody(), k.item.GetPayload().GetBody(); string(a) != "answer" || string(i) != "item" {
		t.Errorf("the caller has changed what the handler keeps: %s, %s", a, i)
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end of the stream = %v, want io.EOF", err)
	}
}

// talker sends endlessly and counts its messages.
type talker struct {
	grpc_testing.UnimplementedTestServiceServer
	sent  atomic.Int32
	ended chan error
}

func (s *talker) StreamingOutputCall(_ *grpc_testing.StreamingOutputCallRequest, stream grpc_testing.TestService_StreamingOutputCallServer) error {
	for {
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{}); err != nil {
			s.ended <- err
			return err
		}
		s.sent.Add(1)
	}
}

func TestAHandlerWithinAProcessWaitsForASlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &talker{ended: make(chan error, 1)}
		client := start(t, rpc.NewProcess(), "state", rpc.ServerConfig{}, s)
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := client.StreamingOutputCall(ctx, &grpc_testing.StreamingOutputCallRequest{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		waiting := s.sent.Load()
		if waiting > 16 {
			t.Errorf("%d messages wait for a reader that reads nothing", waiting)
		}
		for range 10 {
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := s.sent.Load(); n != waiting+10 {
			t.Errorf("%d messages sent after ten were read, want %d", n, waiting+10)
		}
		cancel()
		if err := <-s.ended; err == nil {
			t.Error("the handler goes on without a reader")
		}
	})
}

func TestAServerWithinAProcessEndsItsStreamsAfterTheGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := rpc.NewProcess()
		stop, ended := serveUntil(t, network, service{fail: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		client := grpc_testing.NewTestServiceClient(dial(t, network, "state", rpc.ClientConfig{}))
		failed := make(chan error, len(shapes))
		for _, shape := range shapes {
			go func() { failed <- shape(t.Context(), client) }()
		}
		synctest.Wait()
		began := time.Now()
		stop()
		synctest.Wait()
		if _, err := client.EmptyCall(t.Context(), &grpc_testing.Empty{}); !errors.Is(err, fault.Unavailable) {
			t.Errorf("a call while the server stops = %v, want Unavailable", err)
		}
		for range shapes {
			if err := <-failed; !errors.Is(err, fault.Unavailable) {
				t.Errorf("a call that was cut = %v, want Unavailable", err)
			}
		}
		if err := <-ended; err != nil || time.Since(began) != grace {
			t.Errorf("Serve = %v after %v, want nil after %v", err, time.Since(began), grace)
		}
	})
}

type contextKey struct{}

func TestAHandlerWithinAProcessSeesNoValuesOfItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, ended := make(chan any, 1), make(chan error, 1)
		client := start(t, rpc.NewProcess(), "state", rpc.ServerConfig{}, service{fail: func(ctx context.Context) error {
			began <- ctx.Value(contextKey{})
			derived, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			<-derived.Done()
			ended <- derived.Err()
			return derived.Err()
		}})
		for name, shape := range shapes {
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "secret"))
			failed := make(chan error, 1)
			go func() { failed <- shape(ctx, client) }()
			if got := <-began; got != nil {
				t.Errorf("%s: the handler sees %v", name, got)
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: the handler's context = %v, want it cancelled", name, err)
			}
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: the call = %v, want it cancelled", name, err)
			}
		}
	})
}
