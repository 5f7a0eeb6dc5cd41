import type { Chunk } from '@holdfast/sdk';

export interface ToolCall {
  id: string;
  name: string;
  arguments: unknown;
  argumentsText: string; // while they arrive
  startedAt: number;
  endedAt: number; // 0 while it has no result
  result: unknown;
  success: boolean;
  error: string;
  awaitsClient: boolean;
  approval: { id: string; decision: string; reason: string } | undefined;
  subSession: string;
  subAgent: string;
}

/** Step is a step of a run as its chunks show it, or what happens outside of its steps. */
export interface Step {
  step: number;
  runId: string;
  agentType: string;
  startedAt: number;
  called: boolean; // the model; a step may only take over answers
  modelEndedAt: number; // 0 while the model replies
  endedAt: number; // 0 while it is in flight
  text: string;
  reasoning: string;
  tools: ToolCall[];
  events: { type: string; at: number; about: string; data?: unknown }[];
  checkpointId: string;
  outcome: string; // of the run, if it ended with the step
  failure: { error: string; code: string } | undefined;
}

type Fields = Chunk & Record<string, any>; // eslint-disable-line @typescript-eslint/no-explicit-any

const emptyStep = (chunk: Chunk, step: number): Step => ({
  step, runId: chunk.agentId, agentType: chunk.agentType, startedAt: chunk.timestamp, called: false, modelEndedAt: 0, endedAt: 0,
  text: '', reasoning: '', tools: [], events: [], checkpointId: '', outcome: '', failure: undefined,
});

/**
 * stepsOf groups chunks, in their order, by step. What a run shows before its first step has the number of the step
 * before the run, and belongs to the first step.
 */
export function stepsOf(chunks: Chunk[]): Step[] {
  const steps: Step[] = [];
  let before = { runId: '', step: -1 }; // the step before the run
  for (const chunk of chunks) {
    if (chunk.type === 'run_started' || chunk.type === 'run_resumed') before = { runId: chunk.agentId, step: chunk.step };
    const number = chunk.agentId === before.runId ? Math.max(chunk.step, before.step + 1) : chunk.step;
    let step = steps.at(-1);
    if (!step || step.step !== number || step.runId !== chunk.agentId) {
      step = emptyStep(chunk, number);
      steps.push(step);
    }
    add(step, chunk as Fields);
  }
  return steps;
}

function callOf(step: Step, chunk: Fields): ToolCall {
  let call = step.tools.find((t) => t.id === chunk.toolCallId);
  if (!call) {
    call = {
      id: chunk.toolCallId, name: chunk.toolName ?? chunk.subAgentType ?? '', arguments: undefined, argumentsText: '', startedAt: chunk.timestamp, endedAt: 0,
      result: undefined, success: false, error: '', awaitsClient: false, approval: undefined, subSession: '', subAgent: '',
    };
    step.tools.push(call);
  }
  call.name ||= chunk.toolName ?? '';
  return call;
}

function add(step: Step, chunk: Fields): void {
  const note = (about: string, data?: unknown) => step.events.push({ type: chunk.type, at: chunk.timestamp, about, ...(data === undefined ? {} : { data }) });
  switch (chunk.type) {
    case 'run_started':
      return void note(`Run ${chunk.turn} begins`);
    case 'run_resumed':
      return void note(`Run ${chunk.turn} continues an earlier run`);
    case 'step_started':
      step.startedAt = chunk.timestamp;
      step.called = true;
      return;
    case 'step_committed':
      step.endedAt = chunk.timestamp;
      step.modelEndedAt ||= chunk.timestamp;
      step.checkpointId = chunk.checkpointId;
      return;
    case 'text_delta':
      step.text += chunk.delta;
      return;
    case 'thinking':
      step.reasoning += chunk.content;
      return;
    case 'run_completed':
      step.outcome = 'completed';
      return void note(chunk.completionReason ? `Run completed by ${chunk.completionReason}` : 'Run completed');
    case 'run_interrupted':
      step.outcome = 'interrupted';
      return void note(chunk.reason ? `Run stopped: ${chunk.reason}` : 'Run stopped');
    case 'run_suspended':
      step.outcome = `suspended_${chunk.reason}`;
      return void note(`Run suspended: ${String(chunk.reason).replaceAll('_', ' ')}`);
    case 'run_paused':
      return void note('Run paused');
    case 'run_superseded':
      return void note('Another run took over');
    case 'error':
      step.outcome = 'failed';
      step.failure = { error: chunk.error, code: chunk.code };
      return;
    case 'step_discarded':
      return void note(`Attempt discarded${chunk.reason ? `: ${chunk.reason}` : ''}`);
    case 'custom':
      return void note(chunk.eventName, chunk.data);
    case 'state_patch':
      return void note('State changed', chunk.patches);
    default:
      addCall(step, chunk);
  }
}

function addCall(step: Step, chunk: Fields): void {
  if (!chunk.toolCallId) return; // an event of a newer gateway
  const call = callOf(step, chunk);
  switch (chunk.type) {
    case 'tool_arg_stream_delta':
      call.argumentsText += chunk.delta;
      break;
    case 'tool_start':
      step.modelEndedAt ||= chunk.timestamp;
      call.startedAt = chunk.timestamp;
      call.arguments = chunk.arguments;
      call.awaitsClient = chunk.awaitsClient === true;
      break;
    case 'tool_end':
      step.modelEndedAt ||= chunk.timestamp;
      call.endedAt = chunk.timestamp;
      call.result = chunk.result;
      call.success = chunk.success === true;
      call.error = chunk.error ?? '';
      break;
    case 'tool_approval_request':
      call.arguments ??= chunk.input;
      call.approval = { id: chunk.approvalId, decision: '', reason: '' };
      break;
    case 'tool_approval_response':
      call.approval = { id: chunk.approvalId, decision: chunk.decision, reason: chunk.reason ?? '' };
      break;
    case 'subagent_start':
    case 'subagent_end':
      call.subSession = chunk.subSessionId;
      call.subAgent = chunk.subAgentType;
      if (chunk.type === 'subagent_end') {
        call.endedAt ||= chunk.timestamp;
        call.result ??= chunk.result;
        call.success = chunk.success === true;
      }
  }
}
