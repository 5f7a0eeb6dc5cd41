// Plays scenarios that the Go tests declare: what a user and a page do, step by
// step, with one chat of the SDK.
import { openChat } from './chat.mjs';
import { Recorder } from './record.mjs';
import { Line } from './socket.mjs';

const playLimit = 300_000; // milliseconds for one scenario
const stepLimit = 120_000; // and for what one step waits for
const quiet = 150; // so long nothing happens in a chat that has settled

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// Plays all scenarios, some at a time, and tells the result of each.
export async function play({ scenarios, together, ...world }, tell) {
  const left = [...scenarios];
  const player = async () => {
    for (let scenario = left.shift(); scenario; scenario = left.shift()) {
      tell(scenario.name, await new Play(world, scenario).run());
    }
  };
  await Promise.all(Array.from({ length: together }, player));
}

class Play {
  answers = []; // to requests of the scenario's own
  marks = []; // results in the middle
  pending = []; // what was begun and not waited for
  pages = 0; // that were opened
  recorder = new Recorder();

  constructor(world, scenario) {
    Object.assign(this, { world, scenario });
    this.line = scenario.socket ? new Line(`${world.gateway}/chat/ws`.replace('http', 'ws'), world.key) : null;
  }

  async run() {
    let failure = '';
    try {
      this.chat = await this.page(this.scenario.held ?? []);
      await Promise.race([this.steps(), pause(playLimit).then(() => Promise.reject(new Error('it takes too long')))]);
    } catch (error) {
      failure = String(error.stack ?? error);
    }
    this.line?.sockets.forEach((socket) => socket.terminate());
    const streams = this.recorder.recorded();
    for (const chunks of this.line?.streams() ?? []) {
      streams.push({ request: 'socket', chunks });
    }
    return {
      failure,
      ...this.chat?.result(),
      posts: this.recorder.posts,
      frames: this.line?.sent ?? [],
      answers: this.answers,
      marks: this.marks,
      streams,
    };
  }

  page(messages) {
    const { gateway, key, query, sdk } = this.world;
    const { session, agent, toolsFrom = 0, auto, headers, body, lastOnly } = this.scenario;
    const tools = this.pages++ < toolsFrom ? {} : this.scenario.tools;
    const { fetch } = this.recorder;
    const api = `${gateway}/chat${query}`;
    return openChat({ sdk, api, key, session, agent, messages, tools, auto, headers, body, lastOnly, fetch, socket: this.line });
  }

  async steps() {
    for (const [i, step] of this.scenario.steps.entries()) {
      try {
        await this[step.do](step);
      } catch (error) {
        throw new Error(`step ${i + 1}, ${JSON.stringify(step)}: ${error.message}`, { cause: error });
      }
    }
    await this.settle();
  }

  // The user.

  async send({ text, message, nth }) {
    const messageId = this.messageOf(nth);
    await this.chat.sendMessage({ text, ...(messageId && { messageId }), ...(message && { id: message }) });
    await this.settle();
  }

  // Removes all messages but the first ones at the page, as editors of conversations do before they send.
  truncate({ keep }) {
    this.chat.messages = this.chat.messages.slice(0, keep);
  }

  begin({ text }) {
    this.ends(this.chat.sendMessage({ text }));
  }

  async goOn() {
    await this.chat.sendMessage();
    await this.settle();
  }

  async regenerate({ nth }) {
    const messageId = this.messageOf(nth);
    await this.chat.regenerate(messageId ? { messageId } : {});
    await this.settle();
  }

  async decide({ tool, approved, reason }) {
    await this.chat.addToolApprovalResponse({ id: this.chat.part(tool).approval.id, approved, reason });
    await this.settle();
  }

  async output({ tool, output, errorText }) {
    await this.chat.answer(this.chat.part(tool).toolCallId, tool, { output, errorText });
    await this.settle();
  }

  // The answer is given, and not waited for what it leads to.
  outputOnly({ tool, output }) {
    return this.chat.answer(this.chat.part(tool).toolCallId, tool, { output });
  }

  stop() {
    return this.chat.stop();
  }

  // The page.

  async reload() {
    const { messages } = await (await this.call('GET', `/messages?sessionId=${encodeURIComponent(this.scenario.session)}`)).json();
    this.left = this.chat;
    this.chat = await this.page(messages);
  }

  async resume() {
    await this.chat.resumeStream();
    await this.settle();
  }

  beginResume() {
    this.ends(this.chat.resumeStream());
  }

  // Waits for characters of text.
  async textOf({ characters }) {
    await this.until(`${characters} characters of text`, () => this.chat.text().length >= characters);
  }

  // Waits until the newest part of the tool is in the state.
  async part({ tool, state }) {
    await this.until(`${tool} to be ${state}`, () => {
      try {
        return this.chat.part(tool).state === state;
      } catch {
        return false;
      }
    });
  }

  // Waits until all that was begun is over and nothing follows by itself.
  async settle() {
    await Promise.all(this.pending.splice(0));
    let since = Date.now();
    await this.until('the chat to settle', () => {
      if (!['ready', 'error'].includes(this.chat.status) || this.recorder.open > 0) {
        since = Date.now();
      }
      return Date.now() - since >= quiet;
    });
  }

  mark() {
    this.marks.push(structuredClone(this.chat.result()));
  }

  // The network.

  // Breaks the next stream when the chat has this text of it.
  breakNext({ behind }) {
    this.recorder.breakWhen = () => this.until(`the chat to have ${behind}`, () => this.chat.text().includes(behind));
  }

  // Has the next stream stall behind so many of its events.
  stallNext({ events }) {
    this.recorder.stallBehind = events;
  }

  async stalled() {
    await this.until('the stream to stall', () => this.recorder.stalled);
  }

  loseNext({ what }) {
    this.recorder.lose = what;
  }

  cut() {
    this.line.cut();
  }

  // The gateway, beside the chat.

  async request({ method = 'POST', path, body, headers }) {
    const address = this.fill(path, encodeURIComponent) + this.world.query;
    const response = await this.call(method, address, body === undefined ? undefined : this.fill(JSON.stringify(body)), headers);
    const text = await response.text();
    this.answers.push({ code: response.status, body: text, run: response.headers.get('x-holdfast-run-id') ?? '' });
  }

  // Two equal requests at the same time.
  async twice(step) {
    await Promise.all([this.request(step), this.request(step)]);
  }

  async status({ status }) {
    const path = `/status?sessionId=${encodeURIComponent(this.scenario.session)}`;
    await this.until(`the session to be ${status}`, async () => {
      const response = await this.call('GET', path);
      return response.ok && (await response.json()).status === status;
    });
  }

  // Reads the message again from its beginning, as clients of all versions would.
  async replays() {
    for (const major of [5, 6, 7]) {
      const recorder = new Recorder();
      const path = `/chat/${encodeURIComponent(this.scenario.session)}/stream?aiSdk=${major}&fromSequence=0`;
      const response = await recorder.fetch(`${this.world.gateway}${path}`, { headers: this.headers() });
      await response.text();
      this.recorder.streams.push(...recorder.streams.map((stream) => ({ ...stream, major })));
    }
  }

  call(method, path, body, headers = {}) {
    return this.recorder.fetch(`${this.world.gateway}${path}`, { method, body, headers: { ...this.headers(), ...headers } });
  }

  headers() {
    return { 'Content-Type': 'application/json', Accept: 'application/json', Authorization: `Bearer ${this.world.key}` };
  }

  // Puts in what only the chat knows: {session}, {call:TOOL}, {approval:TOOL}, {run}.
  fill(text, encoded = (value) => value) {
    return text
      .replaceAll('{session}', () => encoded(this.scenario.session))
      .replaceAll('{run}', () => this.recorder.posts.at(-1).run)
      .replaceAll(/\{call:(\w+)\}/g, (_, tool) => this.chat.part(tool).toolCallId)
      .replaceAll(/\{approval:(\w+)\}/g, (_, tool) => this.chat.part(tool).approval.id);
  }

  messageOf(nth) {
    return nth === undefined ? undefined : this.chat.messages[nth].id;
  }

  ends(promise) {
    promise.catch(() => {}); // settle tells
    this.pending.push(promise);
  }

  async until(what, holds) {
    const deadline = Date.now() + stepLimit;
    while (!(await holds())) {
      if (Date.now() > deadline) {
        throw new Error(`waited ${stepLimit} ms for ${what}; the chat is ${JSON.stringify(this.chat.result())}`);
      }
      await pause(10);
    }
  }
}
