package gatewaytest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// idSequence gives the state service its ids, so that tests can name runs: the first run is
// run_1 and writes the message msg_run1, the second is run_2, and so on. A continuation writes
// the message of the run before it.
//
// It depends on the order in which the service makes ids: StartRun makes that of the run, then
// that of the run's message; a commit makes that of the checkpoint first. So calls that write
// go one after another. An answer makes the id of a continuation once per try, and a call
// continues one session at most.
type idSequence struct {
	calls sync.Mutex // held by a call that writes

	mu      sync.Mutex
	runs    int
	others  int
	method  string // of the call that writes
	given   int    // ids that the call has made
	newRuns bool   // the call has made the id of a run
}

// next is state.Peers.NewID.
func (s *idSequence) next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given++
	switch {
	case s.method == "StartRun" && s.given == 1:
		return fmt.Sprint(s.runs + 1)
	case s.method == "StartRun" && s.given == 2:
		return fmt.Sprint("run", s.runs+1)
	case s.method == "StartRun" || s.method == "CommitStep" && s.given == 1 || s.method == "AppendMessages":
		s.others++
		return fmt.Sprint("other", s.others)
	}
	s.newRuns = true
	return fmt.Sprint(s.runs + 1)
}

func (s *idSequence) interceptor() grpc.UnaryServerInterceptor {
	if s == nil {
		return nil
	}
	return s.intercept
}

func (s *idSequence) intercept(ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	method := info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]
	if strings.HasPrefix(method, "Get") || strings.HasPrefix(method, "List") {
		return next(ctx, r)
	}
	s.calls.Lock()
	defer s.calls.Unlock()
	s.mu.Lock()
	s.method, s.given, s.newRuns = method, 0, false
	s.mu.Unlock()
	answer, err := next(ctx, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	started, isStart := answer.(*statev1.StartRunResponse)
	message, _ := answer.(proto.Message)
	if err == nil && isStart && !started.GetRepeated() || s.newRuns && strings.Contains(prototext.Format(message), fmt.Sprintf("%q", fmt.Sprint("run_", s.runs+1))) {
		s.runs++
	}
	s.method = ""
	return answer, err
}
