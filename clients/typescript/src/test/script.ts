import type { Agent } from '../agents/agent.js';

/** ReplyPart is a part of a reply of the model. */
export type ReplyPart =
  | { text: string }
  | { reasoning: string }
  | { call: { name: string; arguments?: object; id?: string } }
  | { wait: string }
  | { error: { code?: string; message?: string; retryable?: boolean } };

/** Reply is what the model says in one step: a text, or parts in order. */
export type Reply = string | ReplyPart | ReplyPart[];

/**
 * Script has the replies of each agent's model, by the agent's name, in the order of a conversation. Each session
 * begins with the first
 * one. A text is a script of the package model/scripted, in YAML, with a model for each agent.
 */
export type Script = { readonly [agent: string]: readonly Reply[] } | string;

/** call is a reply that calls a tool. */
export function call(name: string, args: object = {}): { call: { name: string; arguments: object } } {
  return { call: { name, arguments: args } };
}

/** scriptOf returns the script of the models in YAML, of which JSON is a part. */
export function scriptOf(script: Script, agents: readonly Agent[]): string {
  if (typeof script === 'string') return script;
  const models: Record<string, object> = {};
  for (const agent of agents) {
    // A reply with calls is followed by another one of the same turn, unless one of the calls ends the run.
    const ends = new Set([
      '__finish__',
      ...[...agent.tools.values()].filter((tool) => tool.description.finishWith).map((tool) => tool.name),
    ]);
    const rules: object[] = [];
    let userTurns = 1;
    let step = 1;
    for (const reply of script[agent.name] ?? []) {
      const parts = [typeof reply === 'string' ? { text: reply } : reply].flat();
      rules.push({ when: { userTurns, step }, reply: literal(parts) });
      const names = parts.flatMap((part) => ('call' in part ? [part.call.name] : []));
      if (names.length > 0 && !names.some((name) => ends.has(name))) step++;
      else {
        userTurns++;
        step = 1;
      }
    }
    models[agent.name] = { rules };
  }
  const unknown = Object.keys(script).find((name) => !(name in models));
  if (unknown !== undefined)
    throw new TypeError(`The script has replies of ${JSON.stringify(unknown)}, which is not one of the agents.`);
  return JSON.stringify({ models });
}

/** literal escapes the templates of a script. */
function literal(value: unknown): unknown {
  if (typeof value === 'string') return value.replaceAll('{{', '{{"{{"}}');
  if (Array.isArray(value)) return value.map(literal);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, below]) => [key, literal(below)]));
}
