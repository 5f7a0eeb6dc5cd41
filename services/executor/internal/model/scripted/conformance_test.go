package scripted_test

import (
	_ "embed"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/scripted"
)

//go:embed testdata/replies.yaml
var replies []byte

func TestTheScriptedModelConforms(t *testing.T) {
	t.Parallel()
	script, err := scripted.Parse(replies)
	if err != nil {
		t.Fatal(err)
	}
	modeltest.Run(t, func(*testing.T, modeltest.Scenario) model.Model { return scripted.New(script) })
}
