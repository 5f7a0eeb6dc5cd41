package statev1_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-run/holdfast/pkg/rpc"
	_ "github.com/holdfast-run/holdfast/proto/holdfast/executor/v1"
	_ "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	_ "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// internal lists the packages of the contracts between services.
var internal = []protoreflect.FullName{"holdfast.state.v1", "holdfast.stream.v2", "holdfast.executor.v1"}

func internalServices() (found []protoreflect.ServiceDescriptor) {
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if slices.Contains(internal, file.Package()) {
			services := file.Services()
			for i := range services.Len() {
				found = append(found, services.Get(i))
			}
		}
		return true
	})
	return found
}

func TestEveryMethodBetweenServicesNamesItsCallers(t *testing.T) {
	t.Parallel()
	known := []rpc.Role{rpc.RoleGateway, rpc.RoleExecutor, rpc.RoleOperator}
	methods := 0
	for _, service := range internalServices() {
		allowed := rpc.MethodRoles(service)
		if got, want := len(allowed), service.Methods().Len(); got != want {
			t.Errorf("%s: %d of %d methods name their callers", service.FullName(), got, want)
		}
		for method, roles := range allowed {
			methods++
			for _, role := range roles {
				if !slices.Contains(known, role) {
					t.Errorf("%s names the unknown role %q", method, role)
				}
			}
		}
	}
	if methods < 50 {
		t.Errorf("found %d methods, want those of all services", methods)
	}
}

// A new line here lets every executor call the method: its handler must check the grant. Governors
// need none: they hold nothing of a session.
func TestExecutorsMayCallFewMethods(t *testing.T) {
	t.Parallel()
	want := []string{
		"/holdfast.state.v1.FileService/GetFiles",
		"/holdfast.state.v1.FileService/ReadFile",
		"/holdfast.state.v1.GovernorService/Acquire",
		"/holdfast.state.v1.GovernorService/Release",
		"/holdfast.state.v1.OutboxService/ClaimDeliveries",
		"/holdfast.state.v1.OutboxService/ReportDeliveries",
		"/holdfast.state.v1.RunService/RequestStop",
		"/holdfast.state.v1.RunService/StartRun",
		"/holdfast.state.v1.SessionService/CreateSession",
		"/holdfast.state.v1.SessionService/GetSession",
		"/holdfast.state.v1.SessionService/ListMessages",
		"/holdfast.state.v1.SessionService/ReadStore",
		"/holdfast.state.v1.SessionService/SaveState",
		"/holdfast.state.v1.SessionService/WriteStore",
		"/holdfast.state.v1.WorkService/ClaimRuns",
		"/holdfast.state.v1.WorkService/CommitStep",
		"/holdfast.state.v1.WorkService/FinishRun",
		"/holdfast.state.v1.WorkService/GetDefinition",
		"/holdfast.state.v1.WorkService/Heartbeat",
		"/holdfast.state.v1.WorkService/RecordPlan",
		"/holdfast.state.v1.WorkService/RecordResult",
		"/holdfast.state.v1.WorkService/ReleaseRun",
		"/holdfast.stream.v2.StreamService/Append",
	}
	var got []string
	for _, service := range internalServices() {
		for method, roles := range rpc.MethodRoles(service) {
			if slices.Contains(roles, rpc.RoleExecutor) {
				got = append(got, method)
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("executors may call\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
