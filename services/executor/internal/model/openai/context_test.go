package openai_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/openai"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/profile"
)

// A profile says where a server accepts system messages.
func TestRowsOfContextGoWhereTheProfileAcceptsThem(t *testing.T) {
	t.Parallel()
	places := map[string]bool{}
	for _, name := range profile.Names() {
		place := profileOf(t, name).System
		if places[place] {
			continue
		}
		places[place] = true
		body := sentWith(t, name, modeltest.ContextConversation("m"))
		modeltest.CompareGolden(t, "testdata/chat/context-"+place+".json", body)
		marked := strings.Contains(string(body), `\u003ccontext kind=\"notice\"\u003e`) || strings.Contains(string(body), `<context kind=\"notice\">`)
		if want := place == profile.SystemFirst || place == profile.SystemUser; marked != want {
			t.Errorf("%s: got marked rows %v, want %v: %s", name, marked, want, body)
		}
	}
	if !places[profile.SystemAnywhere] || !places[profile.SystemFirst] {
		t.Errorf("the profiles have the places %v only", places)
	}
}

func TestRowsOfContextAreSystemMessagesOfResponses(t *testing.T) {
	t.Parallel()
	server := modeltest.NewServer(t, "testdata/responses/replies", modeltest.Text, modeltest.Encoding{})
	client := connect(t, server, openai.Config{API: openai.APIResponses})
	if reply := modeltest.Collect(t, client.Generate(t.Context(), modeltest.ContextConversation("m"))); reply.Err != nil {
		t.Fatal(reply.Err)
	}
	modeltest.CompareGolden(t, "testdata/responses/context.json", server.Requests()[0].Body)
}
