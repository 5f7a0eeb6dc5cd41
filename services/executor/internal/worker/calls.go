package worker

import (
	"context"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// maxStepResults bounds the results of one step together, in bytes, so that its
// commit fits into a message of the RPC layer beside the reply.
const maxStepResults = 8 << 20

const reasonResultTooLarge = "RESULT_TOO_LARGE"

// runCalls runs the calls of a step at the same time. Each result is recorded, then
// told.
func (r *runner) runCalls(ctx context.Context, e loop.RunCalls) error {
	results := make([]agent.ToolResult, len(e.Calls))
	usage := make([]*statev1.UsageEntry, len(e.Calls))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.worker.config.ParallelCalls)
	for i, c := range e.Calls {
		group.Go(func() error {
			return r.guard(ctx, func(ctx context.Context) (err error) {
				results[i], usage[i], err = r.runCall(ctx, e, c)
				return err
			})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if !e.Planned {
		r.pending = append(r.pending, present(usage)...)
	}
	r.planner.Ended(results)
	return nil
}

// present leaves out what calls without a tool have not used.
func present(usage []*statev1.UsageEntry) []*statev1.UsageEntry {
	return slices.DeleteFunc(slices.Clone(usage), func(u *statev1.UsageEntry) bool { return u == nil })
}

// runCall runs one call as far as a former owner has not. It uses of the runner
// what does not change while calls run.
func (r *runner) runCall(ctx context.Context, e loop.RunCalls, c loop.Call) (agent.ToolResult, *statev1.UsageEntry, error) {
	var result agent.ToolResult
	begin := r.worker.peers.Now()
	switch {
	case c.Result != nil:
		result = *c.Result
	case ctx.Err() != nil:
		return result, nil, context.Cause(ctx) // the run was lost or cut before the call began
	default:
		result = r.runTool(ctx, c, min(r.worker.config.MaxResultBytes, maxStepResults/len(e.Calls)))
		if ctx.Err() != nil {
			return result, nil, context.Cause(ctx) // cut: how it ended means nothing
		}
	}
	var usage *statev1.UsageEntry
	if c.Tool != nil { // else the name is the model's invention
		usage = toolUsage(c.Name, result.Success, r.worker.peers.Now().Sub(begin).Milliseconds())
	}
	if e.Planned && !c.Recorded {
		var err error
		if result, err = r.recordResult(ctx, e.Step, result, usage); err != nil {
			return result, nil, err
		}
	}
	if r.ended[c.ID] {
		return result, usage, nil
	}
	return result, usage, r.tell(ctx, int32(e.Step), toolEnd(result))
}

func (r *runner) runTool(ctx context.Context, c loop.Call, maxBytes int) agent.ToolResult {
	ctx, span := r.worker.peers.Tracer.Start(ctx, "holdfast.tool", trace.WithAttributes(
		attribute.String("tool.name", c.Name), attribute.String("tool.call_id", c.ID),
	))
	defer span.End()
	result := r.worker.tools.Run(ctx, *c.Tool, r.agentCall(c), maxBytes)
	span.SetAttributes(attribute.Bool("success", result.Success))
	return result
}

// recordResult gives the result that was recorded: one that the state service
// finds too large is a failed one.
func (r *runner) recordResult(ctx context.Context, step int, result agent.ToolResult, usage *statev1.UsageEntry) (agent.ToolResult, error) {
	record := func() error {
		_, err := call(ctx, r, func(ctx context.Context) (*statev1.RecordResultResponse, error) {
			return r.worker.peers.Work.RecordResult(ctx, &statev1.RecordResultRequest{
				Run: r.ref, Step: int32(step),
				Result: &statev1.CallResult{Result: fromResult(result), Usage: present([]*statev1.UsageEntry{usage})},
			})
		})
		return err
	}
	err := record()
	if err != nil && (fault.ReasonOf(err) == reasonResultTooLarge || fault.KindOf(err) == fault.TooLarge) {
		result = agent.ToolResult{
			CallID: result.CallID, Name: result.Name, Synthetic: true,
			Error: fmt.Sprintf("the tool's result has %d bytes, more than can be kept; ask for less", len(result.Result)),
		}
		if usage != nil {
			usage.GetTool().Success = false
		}
		err = record()
	}
	if err != nil {
		return result, fmt.Errorf("record the result of call %s: %w", result.CallID, err)
	}
	return result, nil
}
