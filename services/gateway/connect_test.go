package gateway_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// http2 is a client that speaks unencrypted HTTP/2 only, as gRPC does.
func http2(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func clients(t *testing.T, h *fixture, options ...connect.ClientOption) map[string]agentv1connect.AgentServiceClient {
	t.Helper()
	with := func(o ...connect.ClientOption) []connect.ClientOption { return append(o, options...) }
	return map[string]agentv1connect.AgentServiceClient{
		"connect":  agentv1connect.NewAgentServiceClient(http.DefaultClient, h.url, options...),
		"json":     agentv1connect.NewAgentServiceClient(http.DefaultClient, h.url, with(connect.WithProtoJSON())...),
		"grpc":     agentv1connect.NewAgentServiceClient(http2(t), h.url, with(connect.WithGRPC())...),
		"grpc-web": agentv1connect.NewAgentServiceClient(http.DefaultClient, h.url, with(connect.WithGRPCWeb())...),
	}
}

func frames(t *testing.T, stream *connect.ServerStreamForClient[agentv1.StreamResponse]) string {
	t.Helper()
	var all []string
	for stream.Receive() {
		switch f := stream.Msg().GetFrame().(type) {
		case *agentv1.StreamResponse_Chunk:
			all = append(all, fmt.Sprintf("%s %s", placeName(f.Chunk.GetSequence()), f.Chunk.GetChunk().Type()))
		case *agentv1.StreamResponse_End:
			all = append(all, fmt.Sprintf("%s %s %s", placeName(f.End.GetSequence()), f.End.GetStatus(), f.End.GetOutput()))
		case *agentv1.StreamResponse_Fail:
			all = append(all, fmt.Sprintf("%s %s %s", placeName(f.Fail.GetSequence()), f.Fail.GetError(), f.Fail.GetCode()))
		case *agentv1.StreamResponse_CaughtUp:
			all = append(all, "caught up")
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, ", ")
}

func TestTheConnectServiceStartsStreamsAndReports(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"connect", "json", "grpc", "grpc-web"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			client := clients(t, h)[name]
			started, err := client.Start(t.Context(), &agentv1.StartRequest{Message: "hi", State: `{"a":1}`})
			if err != nil {
				t.Fatal(err)
			}
			if started.GetSessionId() == "" || started.GetStreamId() != started.GetSessionId() || !started.GetSessionCreated() {
				t.Errorf("got %v", started)
			}
			run := h.AwaitRun(t, "default", started.GetSessionId(), nil)
			run.Show(1, Started(), Text("One"))
			run.Complete(AssistantMessage(1, "One"))
			stream, err := client.Stream(t.Context(), &agentv1.StreamRequest{SessionId: started.GetSessionId(), FromSequence: started.GetStartSequence()})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := frames(t, stream), `1.stored.1 run_started, 1.stored.2 step_started, 1.stored.3 text_delta, 1.committed step_committed, 1.last run_completed, 1.ended completed "done"`; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			got, err := client.Get(t.Context(), &agentv1.GetRequest{SessionId: started.GetSessionId()})
			if err != nil {
				t.Fatal(err)
			}
			if got.GetStatus() != "completed" || got.GetRunStatus() != "completed" || got.GetIsExecuting() || got.GetStepCount() != 1 || got.GetOutput() != `"done"` {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestTheConnectServiceStreamsALiveRunThroughDrops(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	run.Show(1, Started())
	stream, err := clients(t, h)["grpc"].Stream(t.Context(), &agentv1.StreamRequest{SessionId: "s1", RunId: "run_1"})
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() || placeName(stream.Msg().GetChunk().GetSequence()) != "1.33.1" {
		t.Fatalf("got %v, %v", stream.Msg(), stream.Err())
	}
	h.Stream.DropReads()
	run.Show(1, Text("One"))
	run.Fail("It failed.", "provider_error")
	if got := frames(t, stream); !strings.HasSuffix(got, "1.33.2 text_delta, 1.outside-1 error, 1.outside It failed. provider_error") {
		t.Errorf("got %s", got)
	}
}

func TestTheConnectServiceRefusesWithReasons(t *testing.T) {
	t.Parallel()
	_, sum := gateway.NewAPIKey()
	file := keysFile(t, "- {name: a, tenant: acme, sha256: "+sum+"}")
	locked := open(t, func(c *gateway.Config) { c.APIKeys, c.InsecureNoAuth = file, false })
	h := open(t, nil)
	for name, client := range clients(t, h) {
		_, err := client.Start(t.Context(), &agentv1.StartRequest{})
		wantReason(t, name+": empty message", err, "MESSAGE_INVALID")
		_, err = client.Start(t.Context(), &agentv1.StartRequest{Message: "x", AgentType: "nobody"})
		wantReason(t, name+": unknown agent", err, "AGENT_NOT_FOUND")
		_, err = client.Start(t.Context(), &agentv1.StartRequest{Message: strings.Repeat("x", 9<<20)})
		wantReason(t, name+": large message", err, "BODY_TOO_LARGE")
		_, err = client.Get(t.Context(), &agentv1.GetRequest{SessionId: "nobody"})
		wantReason(t, name+": unknown session", err, "SESSION_NOT_FOUND")
		stream, err := client.Stream(t.Context(), &agentv1.StreamRequest{SessionId: "nobody"})
		if err == nil {
			stream.Receive()
			err = stream.Err()
		}
		wantReason(t, name+": stream of an unknown session", err, "SESSION_NOT_FOUND")
	}
	for name, client := range clients(t, locked) {
		_, err := client.Get(t.Context(), &agentv1.GetRequest{SessionId: "s1"})
		wantReason(t, name+": no key", err, "API_KEY_MISSING")
	}
}

func wantReason(t *testing.T, what string, err error, reason string) {
	t.Helper()
	if got := fault.ReasonOf(rpc.FromConnect(err)); got != reason {
		t.Errorf("%s: got %v, want %s", what, err, reason)
	}
}

func TestShutdownMakesConnectClientsReconnect(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	run.Show(1, Started())
	stream, err := clients(t, h)["connect"].Stream(t.Context(), &agentv1.StreamRequest{SessionId: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
	for stream.Receive() {
	}
	if connect.CodeOf(stream.Err()) != connect.CodeUnavailable {
		t.Errorf("got %v, want unavailable", stream.Err())
	}
}

func TestAChatStreamsOverHTTP2(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/chat", strings.NewReader(chatBody("s1", "hi")))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http2(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Text("One"))
	stream := streamOf(t, &reply{response})
	stream.until("One")
	if response.ProtoMajor != 2 {
		t.Errorf("got HTTP/%d", response.ProtoMajor)
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
	if events, err := stream.all(); err == nil {
		t.Errorf("the body ends well after %v", events)
	}
}

func TestALargeFileIsUploadedAheadOfItsMessage(t *testing.T) {
	t.Parallel()
	h, acme, _ := openWithKeys(t)
	holdfast := client.New(client.Config{URL: h.url, Key: strings.TrimPrefix(acme, "Bearer ")})
	file, err := holdfast.Upload(t.Context(), "image/png", "photo.png", bytes.NewReader(photo(12<<20)))
	if err != nil {
		t.Fatal(err)
	}
	part := &agentv1.InputPart{Part: &agentv1.InputPart_File{File: file}}
	if _, err := holdfast.Start(t.Context(), &agentv1.StartRequest{SessionId: "s1", AgentType: "demo", Messages: []*agentv1.InputMessage{{Parts: []*agentv1.InputPart{part}}}}); err != nil {
		t.Fatal(err)
	}
	got := h.State.Messages(t, "acme", "s1")[0].GetParts()[0].GetFile()
	if _, stored := eventv1.FileID(got.GetUrl()); !stored || got.GetFilename() != "photo.png" || got.GetMediaType() != "image/png" {
		t.Errorf("got %v", got)
	}
	_, err = holdfast.Upload(t.Context(), "image/png", "", bytes.NewReader(photo(20<<20+1)))
	if fault.ReasonOf(err) != "FILE_TOO_LARGE" {
		t.Errorf("a larger file: got %v", err)
	}
}
