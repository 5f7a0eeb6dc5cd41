/**
 * Agents of Holdfast in your application: define them with `agent` and `tool`, and serve them to an executor with
 * `serve`. The runtime
 * keeps the loop, the models, retries, approvals and durability; your code runs in your process. This module has no
 * dependencies.
 */
export { agent, type Agent, type AgentOptions, type StopRule } from './agent.js';
export type {
  ApprovalCall,
  Call,
  CallIdentity,
  Context,
  Ending,
  Guard,
  Hooks,
  Log,
  MethodCall,
  Methods,
  ModelRequest,
  ContextRow,
  Older,
  StepView,
  Progress,
  RunEnd,
  SubAgentRef,
  Verdict,
  Writes,
} from './context.js';
export { ToolError } from './errors.js';
export { textOf, type Message, type Part, type ToolCall, type ToolResult } from './messages.js';
export { toNode, type NodeRequest, type NodeResponse } from './node.js';
export { jsonSchema, type InputOf, type JSONSchema, type OutputOf, type Schema } from './schema.js';
export { serve, type Handler, type ServeOptions } from './serve.js';
export type { Store, StoreOp, StoreWrites } from './store.js';
export {
  clientTool,
  subAgent,
  tool,
  type ApprovalRule,
  type ClientToolOptions,
  type Condition,
  type Duration,
  type HTTPTool,
  type SubAgentOptions,
  type Tool,
  type ToolEntry,
  type ToolOptions,
  type UsedTool,
} from './tool.js';
export type { StateOp } from './wire.js';
