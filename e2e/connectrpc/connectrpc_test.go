// Package connectrpc_test drives the gateway with the unmodified npm packages @connectrpc/connect-web and
// @connectrpc/connect-node, and code that protoc-gen-es makes from the contract.
package connectrpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	"github.com/holdfast-run/holdfast/e2e/harness"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

func TestMain(m *testing.M) { harness.Main(m, 1) }

const (
	storyWords = 100
	limit      = 5 * time.Minute // of one program
)

func story() string {
	words := make([]string, storyWords)
	for i := range words {
		words[i] = fmt.Sprintf("word%03d", i)
	}
	return strings.Join(words, " ")
}

func agents() string {
	return fmt.Sprintf(`
models:
  scripted:
    script: |
      models:
        talker:
          rules:
            - reply: [{text: '%s', chunk: 1 word, delay: 15ms}]
agents:
  - {name: talker, description: Talks., model: scripted/talker}
`, story())
}

func TestTheConnectClientsOfBrowsersAndNodeStartStreamListAndDelete(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Agents: agents()})
	harness.InstallNPM(t, ".")
	generate(t)
	options, err := json.Marshal(map[string]string{"url": s.URL, "key": harness.Key})
	if err != nil {
		t.Fatal(err)
	}
	var seen map[string]struct {
		Cut, Total, Deleted           int
		Text, Status, Output, Refused string
		Written                       string // by a server, in the words of run.mjs
		Titles                        []string
	}
	if err := json.Unmarshal(run(t, nil, "node", "--no-warnings", "run.mjs", string(options)), &seen); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 6 {
		t.Errorf("got %d clients, want 6", len(seen))
	}
	for name, got := range seen {
		if got.Cut < 20 || got.Cut >= storyWords || got.Text != story() || got.Status != "completed" || got.Output != story() {
			t.Errorf("%s: cut after %d words, then got %q, ended %q with %q", name, got.Cut, got.Text, got.Status, got.Output)
		}
		if !slices.Equal(got.Titles, []string{"A story"}) || got.Total != 1 || got.Deleted != 1 || got.Refused != "NotFound" {
			t.Errorf("%s: got %+v", name, got)
		}
		if want := `["{\"plan\":\"free\"}",false,"completed",true,true,1,3]`; got.Written != want {
			t.Errorf("%s: wrote %s, want %s", name, got.Written, want)
		}
	}
}

// run runs a program to its end and returns its output.
func run(t *testing.T, input []byte, program string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	command := exec.CommandContext(ctx, program, args...)
	var failed bytes.Buffer
	command.Stdin, command.Stderr = bytes.NewReader(input), &failed
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, failed.Bytes())
	}
	return out
}

// generate makes the code of the service and all that it imports in the folder gen.
func generate(t *testing.T) {
	t.Helper()
	request := &pluginpb.CodeGeneratorRequest{Parameter: proto.String("target=js,import_extension=js")}
	known := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if known[file.Path()] {
			return
		}
		known[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i).FileDescriptor)
		}
		request.ProtoFile = append(request.ProtoFile, protodesc.ToFileDescriptorProto(file))
		if !strings.HasPrefix(file.Path(), "google/") {
			request.FileToGenerate = append(request.FileToGenerate, file.Path())
		}
	}
	add(agentv1.File_holdfast_agent_v1_agent_proto)
	for _, f := range request.ProtoFile { // the generator wants source information for its comments
		f.SourceCodeInfo = &descriptorpb.SourceCodeInfo{}
	}
	input, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	var made pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(run(t, input, "node_modules/.bin/protoc-gen-es"), &made); err != nil || made.GetError() != "" {
		t.Fatalf("generate: %v, %s", err, made.GetError())
	}
	for _, f := range made.GetFile() {
		path := filepath.Join("gen", f.GetName())
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(f.GetContent()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
