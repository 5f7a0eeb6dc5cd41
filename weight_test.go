package holdfast_test

import (
	"os/exec"
	"strings"
	"testing"
)

// light are programs with the modules that they must not depend on, not even through others. Each has made a program larger
// by megabytes.
var light = map[string][]string{
	"./examples/weather": { // an executor with agents of a user
		"github.com/anthropics/", "github.com/openai/", "google.golang.org/genai", "cloud.google.com/", "github.com/aws/",
		"cel.dev/", "github.com/antlr4-go/", "buf.build/go/protovalidate",
		"github.com/nats-io/", "modernc.org/", "github.com/jackc/", "github.com/minio/", "github.com/spf13/", "github.com/yuin/",
	},
	"./cmd/holdfast": {
		"github.com/anthropics/", "github.com/openai/", "google.golang.org/genai", "cloud.google.com/", "github.com/aws/",
		"cel.dev/", "github.com/antlr4-go/", "buf.build/go/protovalidate", "github.com/getkin/",
		"github.com/cpuguy83/", "github.com/russross/",
	},
}

func TestProgramsStayLight(t *testing.T) {
	t.Parallel()
	for program, heavy := range light {
		list, err := exec.CommandContext(t.Context(), "go", "list", "-deps", program).Output()
		if err != nil {
			t.Fatalf("list the packages of %s: %v", program, err)
		}
		packages := strings.Fields(string(list))
		if len(packages) < 200 {
			t.Fatalf("%s has only %d packages", program, len(packages))
		}
		for _, pkg := range packages {
			for _, prefix := range heavy {
				if strings.HasPrefix(pkg, prefix) {
					t.Errorf("%s depends on %s: replace it by code of our own, or keep it out of this program", program, pkg)
				}
			}
		}
	}
}
