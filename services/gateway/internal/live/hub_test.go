package live_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/rpc"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/live"
)

// bytesStream answers like the stream service, with frames encoded as bytes.
type bytesStream struct {
	streamv2.UnimplementedStreamServiceServer
}

func (bytesStream) Read(_ *streamv2.ReadRequest, out streamv2.StreamService_ReadServer) error {
	frame, err := proto.Marshal(&streamv2.ReadResponse{Frame: &streamv2.ReadResponse_Records{Records: &streamv2.SessionRecords{
		SessionId: "s", Records: []*streamv2.Record{
			{Sequence: 7, Chunks: []*eventv1.Chunk{{AgentId: "run"}, {AgentId: "run"}}}, {Sequence: 9, Boundary: &streamv2.Boundary{Last: 8}},
		},
	}}})
	if err != nil {
		return err
	}
	response := &streamv2.ReadResponse{}
	response.ProtoReflect().SetUnknown(frame)
	if err := out.Send(response); err != nil {
		return err
	}
	return out.Send(&streamv2.ReadResponse{Frame: &streamv2.ReadResponse_CaughtUp{CaughtUp: &streamv2.CaughtUp{}}})
}

func TestRecordsOfAFrameComeInOrderFromAnyNetwork(t *testing.T) {
	t.Parallel()
	for name, network := range map[string]rpc.Network{"connections": rpc.NewMemory(), "one process": rpc.NewProcess()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, err := rpc.NewServer(rpc.ServerConfig{Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			streamv2.RegisterStreamServiceServer(server, bytesStream{})
			listener, err := network.Listen(t.Context(), "stream")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			var group sync.WaitGroup
			group.Go(func() { _ = rpc.Serve(ctx, server, listener, 0) })
			conn, err := rpc.Dial(network, "stream", rpc.ClientConfig{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = conn.Close()
				cancel()
				group.Wait()
			})
			hub := &live.Hub{Client: streamv2.NewStreamServiceClient(conn), Log: slog.New(slog.DiscardHandler)}
			var got []int64
			err = hub.ReadStored(t.Context(), &streamv2.StreamRef{Tenant: "t", RootSessionId: "s", SessionId: "s"}, 0, false, func(r *live.Record) error {
				got = append(got, r.First, r.Last)
				return nil
			})
			if err != nil || len(got) != 4 || got[0] != 7 || got[1] != 8 || got[2] != 9 || got[3] != 9 {
				t.Errorf("got %v, %v; want records from 7 to 8 and from 9 to 9", got, err)
			}
		})
	}
}
