package worker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// describeFiles is a model that answers with the files of the conversation.
func describeFiles(_ context.Context, r model.Request, say func(model.Event) bool) error {
	text := ""
	for _, m := range r.Messages {
		for _, p := range m.Parts {
			if f, ok := p.(agent.File); ok {
				data, _ := model.DecodeDataURL(f.URL)
				text += fmt.Sprintf("[%s %s]", f.MediaType, data)
			}
		}
	}
	sendText(say, text)
	return nil
}

// putFile stores a file, and returns its id.
func (p *system) putFile(mediaType, text string) string {
	p.t.Helper()
	p.ready()
	stream, err := statev1.NewFileServiceClient(p.stateAPI).PutFile(p.context())
	must(p.t, err)
	must(p.t, stream.Send(&statev1.PutFileRequest{Part: &statev1.PutFileRequest_Head{Head: &statev1.PutFileHead{Tenant: tenant, MediaType: mediaType}}}))
	must(p.t, stream.Send(&statev1.PutFileRequest{Part: &statev1.PutFileRequest_Data{Data: []byte(text)}}))
	got, err := stream.CloseAndRecv()
	must(p.t, err)
	return got.GetFile().GetFileId()
}

func withFile(text, id string) *statev1.StartRunRequest {
	messages := userMessages(text)
	messages[0].Parts = append(messages[0].Parts, &eventv1.Part{Part: &eventv1.Part_File{File: &eventv1.FilePart{MediaType: "text/claimed", Url: eventv1.FileURL(id)}}})
	return &statev1.StartRunRequest{SessionId: "s", AgentType: "demo", Messages: messages}
}

func TestAModelSeesTheStoredFilesOfEveryTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newSystem(t, define("demo", modelFunc(describeFiles)))
		h.config.MaxCallFileBytes, h.config.FileMemory = 100, 100
		cat, dog := h.putFile("text/x", "cat"), h.putFile("text/x", "dog")
		h.open()
		h.end(h.post(withFile("look", cat)))
		run := h.end(h.post(withFile("and this", dog)))
		if got, want := run.GetOutput(), `"[text/x cat][text/x dog]"`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if stored := h.messages("s")[0].GetParts()[1].GetFile().GetUrl(); stored != eventv1.FileURL(cat) {
			t.Errorf("the message refers to %s now", stored)
		}
	})
}

func TestAQuestionWithTooLargeFilesFailsItsRunAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newSystem(t, define("demo", modelFunc(describeFiles)))
		h.config.MaxCallFileBytes, h.config.FileMemory = 5, 100
		large := h.putFile("text/x", "a whale")
		h.open()
		run := h.end(h.post(withFile("look", large)))
		if f := run.GetFailure(); run.GetStatus() != failed || f.GetCode() != model.CodeFilesTooLarge || f.GetRetryable() {
			t.Errorf("got %v, want a failure for the size of the files", run)
		}
		if next := h.end(h.startRun("s", "demo", "never mind")); next.GetStatus() != completed {
			t.Errorf("got %v, want the next turn completed", next)
		}
	})
}
