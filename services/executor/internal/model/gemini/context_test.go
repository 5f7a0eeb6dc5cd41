package gemini_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model/gemini"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
)

func TestRowsOfContextAreMarkedMessagesOfTheUser(t *testing.T) {
	t.Parallel()
	server := modeltest.NewServer(t, "testdata/replies", modeltest.Text, modeltest.Encoding{})
	reply := modeltest.Collect(t, connect(t, server, gemini.Config{}).Generate(t.Context(), modeltest.ContextConversation("some-model")))
	if reply.Err != nil {
		t.Fatal(reply.Err)
	}
	modeltest.CompareGolden(t, "testdata/context.json", server.Requests()[0].Body)
}
