package service_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/service"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
)

type config struct {
	Listen    string `env:"HOLDFAST_ECHO_LISTEN" envDefault:"127.0.0.1:1" doc:"address to serve on"`
	Telemetry telemetry.Config
}

// program is a service that prints its address and ends.
func program(ran *config) service.Program[config] {
	return service.Program[config]{
		Name: "echo", About: "echo repeats.", Telemetry: func(c *config) *telemetry.Config { return &c.Telemetry },
		Run: func(_ context.Context, c config, _ *telemetry.Telemetry) error { *ran = c; return nil },
	}
}

func TestAProgramTellsWhatItIsAndRefusesOtherArguments(t *testing.T) {
	t.Parallel()
	var ran config
	p := program(&ran)
	for _, test := range []struct {
		args   []string
		prints []string
		reason string
	}{
		{[]string{"--help"}, []string{"echo repeats.", "HOLDFAST_ECHO_LISTEN=127.0.0.1:1", "address to serve on", "HOLDFAST_LOG_LEVEL=info", "Exit codes:"}, ""},
		{[]string{"--version"}, []string{"holdfast echo ", "go1."}, ""},
		{[]string{"--port", "80"}, nil, "ARGUMENT_UNKNOWN"},
		{[]string{"--help", "now"}, nil, "ARGUMENT_UNKNOWN"},
	} {
		var out bytes.Buffer
		err := p.Execute(t.Context(), test.args, nil, &out, &out)
		if fault.ReasonOf(err) != test.reason {
			t.Errorf("%q: got %v, want %q", test.args, err, test.reason)
		}
		for _, want := range test.prints {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q prints no %q:\n%s", test.args, want, out.String())
			}
		}
	}
	if ran.Listen != "" {
		t.Error("the service ran, want it only described")
	}
}

func TestAProgramRunsWithItsEnvironmentAndNamesUnknownVariables(t *testing.T) { //nolint:paralleltest // it sets the telemetry of the process
	var ran config
	var log bytes.Buffer
	err := program(&ran).Execute(t.Context(), nil, []string{"HOLDFAST_ECHO_LISTEN=127.0.0.1:2", "HOLDFAST_ECHO_LISTENS=x", "HOLDFAST_OTHER=x"}, &log, &log)
	if err != nil || ran.Listen != "127.0.0.1:2" || ran.Telemetry.ServiceName != "holdfast-echo" {
		t.Errorf("got %v with %+v", err, ran)
	}
	if text := log.String(); !strings.Contains(text, "name=HOLDFAST_ECHO_LISTENS") || strings.Contains(text, "HOLDFAST_OTHER") {
		t.Errorf("the log must name the misspelled variable of the service alone: %s", text)
	}
}
