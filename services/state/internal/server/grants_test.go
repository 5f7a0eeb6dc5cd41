package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite/sqlitetest"
)

// newGrantBench serves with a secret for grants, and returns a connection of an executor's token.
func newGrantBench(t *testing.T) (*bench, *grpc.ClientConn) {
	t.Helper()
	keys, err := grant.Config{Secret: strings.Repeat("s", grant.MinSecret)}.Keys()
	if err != nil {
		t.Fatal(err)
	}
	b := newBenchWith(t, sqlitetest.Open(t), keys)
	file := filepath.Join(t.TempDir(), "tokens")
	b.must(os.WriteFile(file, fmt.Appendf(nil, "executor %x\n", sha256.Sum256([]byte("executor"))), 0o600))
	server, err := rpc.NewServer(rpc.ServerConfig{Security: rpc.Security{TokensFile: file}, Log: b.log})
	b.must(err)
	b.server.Register(server)
	network := rpc.NewMemory()
	listener, err := network.Listen(t.Context(), "state")
	b.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(ctx, server, listener, 0) }()
	conn, err := rpc.Dial(network, "state", rpc.ClientConfig{Security: rpc.Security{Token: "executor"}})
	b.must(err)
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(conn.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return b, conn
}

// claimOf starts a run of the session, and claims it.
func (s *stream) claimOf(sessionID string) *statev1.Claim {
	s.Helper()
	s.start(sessionID)
	return s.execute()
}

func TestAWriteNeedsTheGrantOfItsClaim(t *testing.T) {
	t.Parallel()
	b, _ := newGrantBench(t)
	s := b.open("e1", 10)
	claim, other := s.claimOf("s"), s.claimOf("other")
	_, err := b.work.ReleaseRun(t.Context(), &statev1.ReleaseRunRequest{Run: refTo(claim)})
	b.must(err)
	newer := s.execute()
	writes := map[string]func(ref *statev1.RunRef) error{
		"RecordPlan": func(ref *statev1.RunRef) error {
			_, err := b.work.RecordPlan(t.Context(), &statev1.RecordPlanRequest{Run: ref, Step: 1, Plan: &eventv1.Message{Id: "p", Role: eventv1.Role_ROLE_ASSISTANT}})
			return err
		},
		"RecordResult": func(ref *statev1.RunRef) error {
			_, err := b.work.RecordResult(t.Context(), &statev1.RecordResultRequest{Run: ref, Step: 1, Result: &statev1.CallResult{Result: &eventv1.ToolResultPart{ToolCallId: "c"}}})
			return err
		},
		"CommitStep": func(ref *statev1.RunRef) error {
			_, err := b.work.CommitStep(t.Context(), step(ref, 1))
			return err
		},
		"FinishRun": func(ref *statev1.RunRef) error {
			_, err := b.work.FinishRun(t.Context(), &statev1.FinishRunRequest{Run: ref, Outcome: &statev1.Outcome{Status: completed}})
			return err
		},
		"ReleaseRun": func(ref *statev1.RunRef) error {
			_, err := b.work.ReleaseRun(t.Context(), &statev1.ReleaseRunRequest{Run: ref})
			return err
		},
	}
	with := func(change func(r *statev1.RunRef)) *statev1.RunRef {
		ref := proto.CloneOf(refTo(newer))
		change(ref)
		return ref
	}
	for name, write := range writes {
		for _, test := range []struct {
			name   string
			ref    *statev1.RunRef
			reason string
		}{
			{"no grant", with(func(r *statev1.RunRef) { r.Grant = nil }), "GRANT_MISSING"},
			{"a made-up grant", with(func(r *statev1.RunRef) { r.Grant = []byte(strings.Repeat("x", 80)) }), "GRANT_REFUSED"},
			{"the grant of another run", with(func(r *statev1.RunRef) { r.Grant = other.GetGrant() }), "GRANT_REFUSED"},
			{"the grant of an older epoch", with(func(r *statev1.RunRef) { r.Grant = claim.GetGrant() }), "GRANT_REFUSED"},
			{"an epoch to come", with(func(r *statev1.RunRef) { r.Epoch++ }), "GRANT_REFUSED"},
			{"another run", with(func(r *statev1.RunRef) { r.RunId = other.GetRun().GetRunId() }), "GRANT_REFUSED"},
			{"an older claim", refTo(claim), "EPOCH_STALE"},
		} {
			if err := write(test.ref); fault.ReasonOf(err) != test.reason {
				t.Errorf("%s with %s: got %v, want %s", name, test.name, err, test.reason)
			}
		}
	}
	b.finish(refTo(newer))
	b.finish(refTo(newer)) // the repetition of an end needs its grant too, and has it
}

func TestAnExecutorReachesTheSessionOfItsClaimAndThoseBelow(t *testing.T) {
	t.Parallel()
	b, conn := newGrantBench(t)
	runs, sessions, files := statev1.NewRunServiceClient(conn), statev1.NewSessionServiceClient(conn), statev1.NewFileServiceClient(conn)
	photo, theirs := b.put("acme", "text/plain", []byte("photo")), b.put("acme", "text/plain", []byte("their photo"))
	s := b.open("e1", 10)
	show := func(sessionID string, f *statev1.File) *statev1.Claim {
		r := startOf(sessionID)
		r.Messages[0].Parts = append(r.Messages[0].Parts, &eventv1.Part{Part: &eventv1.Part_File{File: &eventv1.FilePart{Url: "holdfast-file:" + f.GetFileId(), MediaType: "text/plain"}}})
		_, err := b.runs.StartRun(t.Context(), r)
		b.must(err)
		return s.execute()
	}
	claim, other := show("s", photo), show("other", theirs)
	method, err := b.sessions.GrantMethod(t.Context(), &statev1.GrantMethodRequest{Tenant: "acme", SessionId: "s", TtlMs: 60_000})
	b.must(err)
	child := func(id, parent string) *statev1.StartRunRequest {
		r := startOf(id)
		r.Parent = &statev1.Parent{SessionId: parent, ToolCallId: "c-" + id, Mode: statev1.SubSessionMode_SUB_SESSION_MODE_PERSISTENT, Name: id}
		return r
	}
	_, err = runs.StartRun(t.Context(), child("child", "s"), grant.Attach(claim.GetGrant()))
	b.must(err)
	_, err = b.runs.StartRun(t.Context(), child("their-child", "other"))
	b.must(err)
	branch := child("copy", "s")
	branch.Intent = &statev1.StartRunRequest_Branch{Branch: &statev1.Branch{FromSessionId: "other", CheckpointId: "c"}}
	read := func(tenant, id string) func(grpc.CallOption) error {
		return func(o grpc.CallOption) error {
			stream, err := files.ReadFile(t.Context(), &statev1.ReadFileRequest{Tenant: tenant, FileId: id}, o)
			for err == nil {
				_, err = stream.Recv()
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
	get := func(tenant, id string) func(grpc.CallOption) error {
		return func(o grpc.CallOption) error {
			_, err := sessions.GetSession(t.Context(), &statev1.GetSessionRequest{Tenant: tenant, SessionId: id}, o)
			return err
		}
	}
	list := func(id string) func(grpc.CallOption) error {
		return func(o grpc.CallOption) error {
			_, err := sessions.ListMessages(t.Context(), &statev1.ListMessagesRequest{Tenant: "acme", SessionId: id}, o)
			return err
		}
	}
	start := func(r *statev1.StartRunRequest) func(grpc.CallOption) error {
		return func(o grpc.CallOption) error {
			_, err := runs.StartRun(t.Context(), r, o)
			return err
		}
	}
	stop := func(id string) func(grpc.CallOption) error {
		return func(o grpc.CallOption) error {
			_, err := runs.RequestStop(t.Context(), &statev1.RequestStopRequest{Tenant: "acme", SessionId: id, Kind: statev1.StopKind_STOP_KIND_ABORT}, o)
			return err
		}
	}
	save := func(id string) func(grpc.CallOption) error {
		return func(o grpc.CallOption) error {
			_, err := sessions.SaveState(t.Context(), &statev1.SaveStateRequest{Tenant: "acme", SessionId: id, CustomState: "{}"}, o)
			return err
		}
	}
	readStore := func(id string) func(grpc.CallOption) error {
		return func(o grpc.CallOption) error {
			_, err := sessions.ReadStore(t.Context(), &statev1.ReadStoreRequest{Tenant: "acme", SessionId: id}, o)
			return err
		}
	}
	writeStore := func(id string) func(grpc.CallOption) error {
		return func(o grpc.CallOption) error {
			_, err := sessions.WriteStore(t.Context(), &statev1.WriteStoreRequest{Tenant: "acme", SessionId: id}, o)
			return err
		}
	}
	create := func(r *statev1.CreateSessionRequest) func(grpc.CallOption) error {
		return func(o grpc.CallOption) error {
			_, err := sessions.CreateSession(t.Context(), r, o)
			return err
		}
	}
	for _, test := range []struct {
		name             string
		call             func(grpc.CallOption) error
		byClaim, byOther string // the reasons with the grants of the claims of s and of other
		byMethod         string // with the grant of a method of s
	}{
		{"read the own session", get("acme", "s"), "", "GRANT_REFUSED", ""},
		{"read a session below", get("acme", "child"), "", "GRANT_REFUSED", "GRANT_REFUSED"},
		{"read a session below another", get("acme", "their-child"), "GRANT_REFUSED", "", "GRANT_REFUSED"},
		{"read no session", get("acme", "nowhere"), "GRANT_REFUSED", "GRANT_REFUSED", "GRANT_REFUSED"},
		{"read of another tenant", get("evil", "s"), "GRANT_REFUSED", "GRANT_REFUSED", "GRANT_REFUSED"},
		{"list the messages", list("s"), "", "GRANT_REFUSED", "GRANT_REFUSED"},
		{"list the messages below", list("child"), "GRANT_REFUSED", "GRANT_REFUSED", "GRANT_REFUSED"},
		{"read the own file", read("acme", photo.GetFileId()), "", "FILE_NOT_FOUND", "GRANT_REFUSED"},
		{"read another file", read("acme", theirs.GetFileId()), "FILE_NOT_FOUND", "", "GRANT_REFUSED"},
		{"read a file by its id alone", read("", photo.GetFileId()), "GRANT_REFUSED", "GRANT_REFUSED", "GRANT_REFUSED"},
		{"start a root", start(startOf("new")), "GRANT_REFUSED", "GRANT_REFUSED", "GRANT_REFUSED"},
		{"start another's session as below", start(child("their-child", "s")), "PARENT_MISMATCH", "GRANT_REFUSED", "GRANT_REFUSED"},
		{"copy another session", start(branch), "GRANT_REFUSED", "GRANT_REFUSED", "GRANT_REFUSED"},
		{"stop a session below", stop("child"), "", "GRANT_REFUSED", "GRANT_REFUSED"},
		{"stop another session", stop("other"), "GRANT_REFUSED", "GRANT_REFUSED", "GRANT_REFUSED"},
		{"save the state", save("s"), "GRANT_REFUSED", "GRANT_REFUSED", ""},
		{"save another state", save("other"), "GRANT_REFUSED", "GRANT_REFUSED", "GRANT_REFUSED"},
		{"read the own store", readStore("s"), "", "GRANT_REFUSED", ""},
		{"read the store of a session below", readStore("child"), "GRANT_REFUSED", "GRANT_REFUSED", "GRANT_REFUSED"},
		{"write the own store", writeStore("s"), "GRANT_REFUSED", "GRANT_REFUSED", ""},
		{"write another store", writeStore("other"), "GRANT_REFUSED", "GRANT_REFUSED", "GRANT_REFUSED"},
		{"create the own session", create(&statev1.CreateSessionRequest{Tenant: "acme", SessionId: "s", AgentType: "support"}), "GRANT_REFUSED", "GRANT_REFUSED", "SESSION_EXISTS"},
		{"create a session below", create(&statev1.CreateSessionRequest{Tenant: "acme", SessionId: "s", AgentType: "support", Parent: &statev1.Parent{SessionId: "other"}}), "GRANT_REFUSED", "GRANT_REFUSED", "GRANT_REFUSED"},
		{"create a session", create(&statev1.CreateSessionRequest{Tenant: "acme", AgentType: "support"}), "GRANT_REFUSED", "GRANT_REFUSED", "GRANT_REFUSED"},
	} {
		for _, with := range []struct {
			grant  []byte
			reason string
		}{
			{nil, "GRANT_MISSING"}, {[]byte(strings.Repeat("x", 80)), "GRANT_REFUSED"},
			{claim.GetGrant(), test.byClaim}, {other.GetGrant(), test.byOther}, {method.GetGrant(), test.byMethod},
		} {
			if err := test.call(grant.Attach(with.grant)); fault.ReasonOf(err) != with.reason {
				t.Errorf("%s: got %v, want %q (grant %q)", test.name, err, with.reason, with.grant)
			}
		}
	}
}

func TestAGrantEndsWithItsClaim(t *testing.T) {
	t.Parallel()
	b, conn := newGrantBench(t)
	sessions := statev1.NewSessionServiceClient(conn)
	s := b.open("e1", 10)
	first := s.claimOf("s")
	get := func(c *statev1.Claim) error {
		_, err := sessions.GetSession(t.Context(), &statev1.GetSessionRequest{Tenant: "acme", SessionId: "s"}, grant.Attach(c.GetGrant()))
		return err
	}
	list := func(c *statev1.Claim) error {
		_, err := sessions.ListMessages(t.Context(), &statev1.ListMessagesRequest{Tenant: "acme", SessionId: "s"}, grant.Attach(c.GetGrant()))
		return err
	}
	b.must(errors.Join(get(first), list(first)))
	_, err := b.work.ReleaseRun(t.Context(), &statev1.ReleaseRunRequest{Run: refTo(first), DelayMs: 60_000})
	b.must(err)
	b.refuses(get(first), fault.Stale, "EPOCH_STALE")
	b.refuses(list(first), fault.Stale, "EPOCH_STALE")
	b.advance(time.Minute)
	b.server.Wake("support")
	second := s.execute()
	b.refuses(get(first), fault.Stale, "EPOCH_STALE")
	b.refuses(list(first), fault.Stale, "EPOCH_STALE")
	b.must(errors.Join(get(second), list(second)))
	b.finish(refTo(second))
	b.must(get(second)) // how the run has ended
	b.refuses(list(second), fault.Stale, "RUN_FINISHED")
	third := s.claimOf("s")
	b.refuses(get(second), fault.Stale, "EPOCH_STALE")
	b.must(get(third))
}

func TestAGrantOfAMethodExpires(t *testing.T) {
	t.Parallel()
	b, conn := newGrantBench(t)
	b.announce()
	sessions := statev1.NewSessionServiceClient(conn)
	for ttl, reason := range map[int64]string{0: "TTL_INVALID", -1: "TTL_INVALID", 1: "", 86_400_000: "", 86_400_001: "TTL_INVALID"} {
		if _, err := b.sessions.GrantMethod(t.Context(), &statev1.GrantMethodRequest{Tenant: "acme", SessionId: "new", TtlMs: ttl}); fault.ReasonOf(err) != reason {
			t.Errorf("a time of %d ms: got %v, want %q", ttl, err, reason)
		}
	}
	got, err := b.sessions.GrantMethod(t.Context(), &statev1.GrantMethodRequest{Tenant: "acme", SessionId: "new", TtlMs: 60_000})
	b.must(err)
	save := func() error {
		_, err := sessions.SaveState(t.Context(), &statev1.SaveStateRequest{Tenant: "acme", SessionId: "new", CustomState: `{"a":1}`}, grant.Attach(got.GetGrant()))
		return err
	}
	_, err = sessions.CreateSession(t.Context(), &statev1.CreateSessionRequest{Tenant: "acme", SessionId: "new", AgentType: "support"}, grant.Attach(got.GetGrant()))
	b.must(errors.Join(err, save()))
	b.advance(time.Minute)
	b.refuses(save(), fault.Denied, "GRANT_REFUSED")
	ref := &statev1.RunRef{Tenant: "acme", SessionId: "new", RunId: "r", Epoch: 1, Grant: got.GetGrant()}
	_, err = b.work.FinishRun(t.Context(), &statev1.FinishRunRequest{Run: ref, Outcome: &statev1.Outcome{Status: completed}})
	b.refuses(err, fault.Denied, "GRANT_REFUSED")
}
