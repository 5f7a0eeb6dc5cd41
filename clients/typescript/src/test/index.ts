/**
 * A test kit: your agents on the real runtime. It needs the program `holdfast`, and no key: the model follows a script.
 */
import { Runtime, type Options } from './runtime.js';

export { Chat } from './chat.js';
export { Runtime, type Options } from './runtime.js';
export { call, type Reply, type ReplyPart, type Script } from './script.js';

/**
 * holdfast starts the runtime with your agents, and returns when it is ready. Its data is in a folder of its own, so
 * tests can run at once.
 * End it with close, or with `await using`.
 */
export function holdfast(options: Options): Promise<Runtime> {
  return Runtime.start(options);
}

/**
 * everyCrash runs the scenario without a crash, and then once for each moment at which the runtime or your application
 * can crash: before
 * and after each call of your application, and when it has answered. The scenario creates its own chats. An error
 * names the crash.
 */
export async function everyCrash(options: Options, scenario: (runtime: Runtime) => Promise<void>): Promise<void> {
  const runtime = await Runtime.start(options);
  try {
    const moments = await runtime.rehearse(() => scenario(runtime));
    for (const victim of ['application', 'runtime'] as const) {
      for (const [index, moment] of moments.entries()) {
        try {
          await runtime.crashing(victim, index, () => scenario(runtime));
        } catch (error) {
          throw new Error(`The ${victim} crashed ${moment}, and then: ${(error as Error).message}`, { cause: error });
        }
      }
    }
  } finally {
    await runtime.close();
  }
}
