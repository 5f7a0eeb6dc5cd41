package process_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/process"
)

// roleVariable makes the test binary act as a process under Main.
const roleVariable = "HOLDFAST_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "polite":
		process.Main(func(ctx context.Context) error {
			fmt.Println("ready")
			<-ctx.Done()
			return ctx.Err()
		})
	case "stubborn":
		process.Main(func(ctx context.Context) error {
			fmt.Println("ready")
			<-ctx.Done()
			fmt.Println("stopping")
			select {}
		})
	case "broken":
		process.Main(func(context.Context) error { return errors.New("no database") })
	}
}

func TestMainEndsARealProcess(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		role    string
		signals []os.Signal // each is sent after another line of output
		code    int
	}{
		"after SIGTERM":         {"polite", []os.Signal{syscall.SIGTERM}, 0},
		"after SIGINT":          {"polite", []os.Signal{os.Interrupt}, 0},
		"after a second signal": {"stubborn", []os.Signal{syscall.SIGTERM, os.Interrupt}, 130},
		"after its task failed": {"broken", nil, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := exec.CommandContext(t.Context(), os.Args[0])
			command.Env = append(os.Environ(), roleVariable+"="+test.role)
			stdout, err := command.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stdout)
			for _, s := range test.signals {
				if !lines.Scan() {
					t.Fatal("the process said nothing")
				}
				if err := command.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			_ = command.Wait() // the exit code has the result
			if got := command.ProcessState.ExitCode(); got != test.code {
				t.Errorf("exit code = %d, want %d", got, test.code)
			}
		})
	}
}
