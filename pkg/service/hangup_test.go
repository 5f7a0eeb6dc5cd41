package service_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/service"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
)

// roleVariable makes the test binary act as a service.
const roleVariable = "HOLDFAST_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "" {
		os.Exit(m.Run())
	}
	service.Program[config]{
		Name: "echo", About: "echo repeats.", Telemetry: func(c *config) *telemetry.Config { return &c.Telemetry },
		Run: func(ctx context.Context, _ config, _ *telemetry.Telemetry) error {
			fmt.Println("ready")
			<-ctx.Done()
			return ctx.Err()
		},
	}.Main()
}

func TestAHangupEndsNoService(t *testing.T) {
	t.Parallel()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), roleVariable+"=service")
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if lines := bufio.NewScanner(stdout); !lines.Scan() {
		t.Fatal("the service is not ready")
	}
	// The kernel delivers the hangup before the second signal, because its number is lower.
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		if err := command.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := command.Wait(); err != nil {
		t.Errorf("got %v, want a clean end after SIGTERM", err)
	}
}
