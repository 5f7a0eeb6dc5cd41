package main

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor"
	"github.com/holdfast-run/holdfast/services/gateway"
	"github.com/holdfast-run/holdfast/services/state"
	"github.com/holdfast-run/holdfast/services/stream"
)

// executable is the program of a service.
type executable interface {
	Execute(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error
	Variables() []config.Variable
}

func servicePrograms() map[string]executable {
	return map[string]executable{
		"state": state.Program(), "stream": stream.Program(), "gateway": gateway.Program(gateway.Peers{}), "executor": executor.Program(nil, executor.Peers{}),
	}
}

func TestEveryServiceAnswersForHelpInsteadOfStarting(t *testing.T) {
	t.Parallel()
	for name, p := range servicePrograms() {
		var out bytes.Buffer
		if err := p.Execute(t.Context(), []string{"--help"}, nil, &out, io.Discard); err != nil {
			t.Errorf("%s --help: %v", name, err)
		}
		for _, v := range p.Variables() {
			if v.Doc == "" || !strings.Contains(out.String(), "  "+v.Name) {
				t.Errorf("%s --help does not describe %s", name, v.Name)
			}
		}
		if err := p.Execute(t.Context(), []string{"start"}, nil, io.Discard, io.Discard); fault.ReasonOf(err) != "ARGUMENT_UNKNOWN" {
			t.Errorf("%s start: got %v, want ARGUMENT_UNKNOWN", name, err)
		}
	}
}

// secretName matches names of variables with secrets. Those in public hold the path of a file, or a limit.
var (
	secretName = regexp.MustCompile(`SECRET|TOKEN|PASSWORD|CREDS|KEY`)
	public     = []string{
		"HOLDFAST_INTERNAL_TOKENS", "HOLDFAST_INTERNAL_TLS_KEY", "HOLDFAST_GATEWAY_API_KEYS", "HOLDFAST_GATEWAY_TOKEN_MAX_TTL", "HOLDFAST_STREAM_NATS_CREDS",
		"HOLDFAST_GATEWAY_JWT_UNKNOWN_KEY", "HOLDFAST_GATEWAY_JWT_KEEP_KEYS", "HOLDFAST_STATE_S3_ACCESS_KEY",
	}
)

func TestEveryVariableWithASecretIsMarked(t *testing.T) {
	t.Parallel()
	for name, p := range servicePrograms() {
		for _, v := range p.Variables() {
			known := strings.Contains("\n"+strings.Join(public, "\n")+"\n", "\n"+v.Name+"\n")
			if secretName.MatchString(v.Name) && v.Secret == known {
				t.Errorf("%s: %s is secret: %v, public: %v; want one of both", name, v.Name, v.Secret, known)
			}
		}
	}
}
