package conversation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
)

// kept is a state service with one conversation.
type kept struct {
	statev1.RunServiceClient
	statev1.SessionServiceClient
	runs     []*statev1.Run
	messages []*eventv1.Message
	asked    int // for messages
}

func (k *kept) ListRuns(_ context.Context, r *statev1.ListRunsRequest, _ ...grpc.CallOption) (*statev1.ListRunsResponse, error) {
	out := &statev1.ListRunsResponse{}
	for i := len(k.runs) - 1; i >= 0; i-- {
		if r.GetBeforeTurn() == 0 || k.runs[i].GetTurn() < r.GetBeforeTurn() {
			out.Runs = append(out.Runs, k.runs[i])
		}
	}
	return out, nil
}

func (k *kept) ListMessages(_ context.Context, r *statev1.ListMessagesRequest, _ ...grpc.CallOption) (*statev1.ListMessagesResponse, error) {
	k.asked++
	out := &statev1.ListMessagesResponse{Total: int64(len(k.messages))}
	for i := r.GetOffset(); i < min(out.GetTotal(), r.GetOffset()+int64(r.GetLimit())); i++ {
		out.Messages = append(out.Messages, &statev1.StoredMessage{Ordinal: i, Message: k.messages[i]})
	}
	return out, nil
}

// run adds a run that begins with the messages and writes the steps, a message each. Its
// answer has the id a-ID, or that of the run which it continues.
func (k *kept) run(id, answer string, steps int, begins ...*eventv1.Message) {
	k.runs = append(k.runs, &statev1.Run{
		RunId: id, MessageId: answer, Turn: int32(len(k.runs) + 1), StartMessageCount: int64(len(k.messages)),
	})
	for _, m := range begins {
		m.RunId = id
	}
	k.messages = append(k.messages, begins...)
	for step := range steps {
		k.messages = append(k.messages, &eventv1.Message{
			Id: fmt.Sprint(id, step), Role: eventv1.Role_ROLE_ASSISTANT, RunId: id, Step: int32(step + 1),
		})
	}
}

func of(role eventv1.Role, id string) *eventv1.Message { return &eventv1.Message{Id: id, Role: role} }

func user(id string) *eventv1.Message { return of(eventv1.Role_ROLE_USER, id) }

func TestTheQuestionOfAnAnswerIsTheOneThatItsRunBeganWith(t *testing.T) {
	t.Parallel()
	hidden := user("hidden")
	hidden.Hidden = true
	for name, tc := range map[string]struct {
		tell func(*kept)
		want string
	}{
		"a run that has answered":          {func(k *kept) { k.run("r1", "a1", 2, user("u1")); k.run("r2", "a2", 1, user("u2")) }, "u1"},
		"a run that failed at once":        {func(k *kept) { k.run("r1", "a1", 0, user("u1")); k.run("r2", "a2", 1, user("u2")) }, "u1"},
		"the newest, which failed at once": {func(k *kept) { k.run("r0", "a0", 1, user("u0")); k.run("r1", "a1", 0, user("u1")) }, "u1"},
		"several messages": {func(k *kept) {
			k.run("r1", "a1", 1, user("u0"), of(eventv1.Role_ROLE_ASSISTANT, "x"), user("u1"), hidden)
		}, "u1"},
		"a run that was continued":           {func(k *kept) { k.run("r1", "a1", 2, user("u1")); k.run("r2", "a1", 2); k.run("r3", "a1", 0) }, "u1"},
		"a run that began without a message": {func(k *kept) { k.run("r0", "a0", 900, user("u0")); k.run("r1", "a1", 1) }, "u0"},
		"such a one that has left nothing":   {func(k *kept) { k.run("r0", "a0", 1, user("u0")); k.run("r1", "a1", 0) }, "u0"},
		"messages before the place of its own": {func(k *kept) {
			k.run("r1", "a1", 0, user("u1"))
			k.runs[0].StartMessageCount = 1
			k.run("r2", "a2", 1, user("u2"))
		}, "u1"},
		"nothing of a user's": {func(k *kept) { k.run("r1", "a1", 1, hidden) }, ""},
		"a run that was taken back": {func(k *kept) {
			k.run("r0", "a0", 1, user("u0"))
			k.run("r1", "a1", 1, user("u1"))
			k.messages = k.messages[:2]
			k.run("r2", "a2", 1, user("u1"))
		}, ""},
		"no such answer": {func(k *kept) { k.run("r0", "a0", 1, user("u0")) }, ""},
	} {
		k := &kept{}
		tc.tell(k)
		r := &conversation.Reader{Runs: k, Sessions: k}
		got, err := r.Question(t.Context(), "default", "s1", "a1")
		switch {
		case tc.want != "" && (err != nil || got != tc.want):
			t.Errorf("%s: got %q, %v; want %s", name, got, err, tc.want)
		case tc.want == "" && (!errors.Is(err, fault.NotFound) || fault.ReasonOf(err) != "MESSAGE_NOT_FOUND"):
			t.Errorf("%s: got %q, %v; want MESSAGE_NOT_FOUND", name, got, err)
		}
	}
}

func TestAQuestionIsNotLookedForWithoutAnEnd(t *testing.T) {
	t.Parallel()
	k := &kept{}
	k.run("r0", "a0", 20_000, user("far away"))
	k.run("r1", "a1", 20_000)
	r := &conversation.Reader{Runs: k, Sessions: k}
	if got, err := r.Question(t.Context(), "default", "s1", "a1"); fault.ReasonOf(err) != "MESSAGE_NOT_FOUND" || k.asked > 50 {
		t.Errorf("got %q, %v after %d pages", got, err, k.asked)
	}
	many := &kept{}
	begins := []*eventv1.Message{user("u1")}
	for i := range 20_000 {
		begins = append(begins, of(eventv1.Role_ROLE_CONTEXT, fmt.Sprint(i)))
	}
	many.run("r1", "a1", 1, begins...)
	r = &conversation.Reader{Runs: many, Sessions: many}
	if got, err := r.Question(t.Context(), "default", "s1", "a1"); err != nil || got != "u1" || many.asked > 50 {
		t.Errorf("got %q, %v after %d pages", got, err, many.asked)
	}
}
