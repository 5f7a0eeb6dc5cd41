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

// idSequence generates the ids of the state service, so that tests can name runs. The first run is
// run_1 and writes the message msg_run1, the second is run_2, and so on. A continuation writes the
// message of the run before it.
//
// It depends on the order of the service's ids: StartRun needs one for the run, then one for its
// message; a commit first needs one for the checkpoint. So writing calls run one at a time. An
// answer may need an id for a continuation in each try, and continues at most one session.
type idSequence struct {
	calls sync.Mutex // held by a writing call

	mu      sync.Mutex
	runs    int
	others  int
	method  string // of the writing call
	given   int    // ids of the call so far
	newRuns bool   // the call has used the id of a run
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
	if err == nil && isStart && !started.GetRepeated() ||
		s.newRuns && strings.Contains(prototext.Format(message), fmt.Sprintf("%q", fmt.Sprint("run_", s.runs+1))) {
		s.runs++
	}
	s.method = ""
	return answer, err
}
