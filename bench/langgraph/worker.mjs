// The agent on LangGraph.js with PostgresSaver. It serves the commands of the benchmark
// (internal/worker): "run N" executes N runs at the same time.
import { createInterface } from "node:readline";
import { AIMessage, HumanMessage, ToolMessage } from "@langchain/core/messages";
import { END, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { PostgresSaver } from "@langchain/langgraph-checkpoint-postgres";
import pg from "pg";

const steps = 20;
const connections = 16; // as the state service of Holdfast has

// answers is how often the model has answered.
const answers = (messages) => messages.filter((m) => m.getType() === "ai").length;

function model({ messages }, { writer }) {
  const step = answers(messages) + 1;
  writer?.({ type: "step-start", step });
  if (step === steps) {
    const text = "That is all.";
    writer?.({ type: "text", step, text });
    writer?.({ type: "step-end", step });
    return { messages: [new AIMessage({ id: `assistant-${step}`, content: text })] };
  }
  const call = { id: `call-${step}`, name: "calculate", args: { expression: "6 * 7" }, type: "tool_call" };
  writer?.({ type: "tool-start", step, call: { id: call.id, name: call.name } });
  writer?.({ type: "tool-input", step, call });
  return { messages: [new AIMessage({ id: `assistant-${step}`, content: "", tool_calls: [call] })] };
}

function tools({ messages }, { writer }) {
  const step = answers(messages);
  const [call] = messages.at(-1).tool_calls;
  const [a, b] = call.args.expression.split(" * ").map(Number);
  const result = new ToolMessage({
    id: `tool-${step}`, tool_call_id: call.id, name: call.name, content: JSON.stringify({ result: a * b }),
  });
  writer?.({ type: "tool-result", step, content: result.content });
  writer?.({ type: "step-end", step });
  return { messages: [result] };
}

const next = ({ messages }) => (messages.at(-1).tool_calls?.length ? "tools" : END);

async function run(graph, id) {
  const config = {
    configurable: { thread_id: id },
    recursionLimit: 4 * steps,
    durability: "sync", // a step is written before the next one begins
    streamMode: "custom",
  };
  let chunks = 0;
  for await (const _ of await graph.stream({ messages: [new HumanMessage({ id: "user-1", content: "Go on." })] }, config)) chunks++;
  const wanted = 5 * (steps - 1) + 3;
  if (chunks !== wanted) throw new Error(`${id} streamed ${chunks} chunks, want ${wanted}`);
}

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: connections });
const saver = new PostgresSaver(pool);
await saver.setup();
const graph = new StateGraph(MessagesAnnotation)
  .addNode("model", model)
  .addNode("tools", tools)
  .addEdge(START, "model")
  .addConditionalEdges("model", next, ["tools", END])
  .addEdge("tools", "model")
  .compile({ checkpointer: saver });

console.log("ready");
let batch = 0;
for await (const line of createInterface({ input: process.stdin })) {
  batch++;
  const n = Number(line.match(/^run (\d+)$/)[1]);
  try {
    await Promise.all(Array.from({ length: n }, (_, i) => run(graph, `run-${batch}-${i}`)));
    console.log("ok");
  } catch (error) {
    console.log("error " + String(error.stack).replaceAll("\n", " "));
  }
}
await pool.end();
