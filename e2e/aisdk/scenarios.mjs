// What the client does. Each scenario gets the options of the Go test and a way
// to tell it something in the middle, and returns what the test looks at.
import { openChat } from './chat.mjs';

// Says each text when the answer to the former one is whole.
export async function turns(options) {
  const chat = await openChat(options);
  for (const text of options.texts) {
    await chat.sendMessage({ text });
  }
  return chat.result();
}

// Says one text and tells the test when half of the answer is there.
export async function watch(options, tell) {
  const chat = await openChat(options);
  const answered = chat.sendMessage({ text: options.texts[0] });
  await chat.textOf(options.half);
  tell('half');
  await answered;
  return chat.result();
}

// Loses the connection in the middle of the answer (the test's proxy cuts it)
// and resumes with the same chat. It tells the test when the connection is lost, as
// the ones below do.
export async function resumeAfterCut(options, tell) {
  const chat = await openChat(options);
  await chat.sendMessage({ text: options.texts[0] });
  const cut = chat.result();
  tell('cut');
  await chat.resumeStream();
  return { ...chat.result(), cut };
}

// Watches until the connection breaks, and resumes with the same chat.
export async function watchAndResume(options, tell) {
  const chat = await openChat(options);
  const answered = chat.sendMessage({ text: options.texts[0] });
  await chat.textOf(options.half);
  tell('half');
  await answered;
  const cut = chat.result();
  await chat.resumeStream();
  return { ...chat.result(), cut };
}

// Resumes with the same chat after a fetch that fails as a browser's does.
export async function resumeAfterNetworkError(options, tell) {
  let chat = null;
  const shown = () => chat.textOf(options.half);
  chat = await openChat({ ...options, fetch: fetchThatBreaksOnce(shown) });
  await chat.sendMessage({ text: options.texts[0] });
  const cut = chat.result();
  tell('cut');
  await chat.resumeStream();
  return { ...chat.result(), cut };
}

// Leaves the page in the middle of the answer; a new page loads the
// conversation and resumes.
export async function reload(options, tell) {
  const left = await openChat(options);
  const answered = left.sendMessage({ text: options.texts[0] });
  await left.textOf(options.half);
  await left.stop();
  await answered;
  tell('cut');

  const url = `${options.gateway}/messages?sessionId=${encodeURIComponent(options.session)}`;
  const response = await fetch(url, { headers: options.key ? { Authorization: `Bearer ${options.key}` } : {} });
  const { messages } = await response.json();
  const chat = await openChat({ ...options, messages });
  await chat.resumeStream();
  return { ...chat.result(), cut: left.result() };
}

// Opens a page for a chat that nobody has ever used.
export async function resume(options) {
  const chat = await openChat(options);
  await chat.resumeStream();
  return chat.result();
}

// A fetch whose first answer breaks off when the promise that it is given resolves,
// with the error of a browser whose network is gone.
function fetchThatBreaksOnce(when) {
  let answers = 0;
  return async (url, init) => {
    const response = await fetch(url, init);
    if (!response.body || answers++ > 0) {
      return response;
    }
    const broken = when().then(() => null);
    const reader = response.body.getReader();
    const body = new ReadableStream({
      async pull(controller) {
        const piece = await Promise.race([broken, reader.read()]);
        if (piece === null) {
          await reader.cancel();
          throw new TypeError('network error');
        }
        if (piece.done) {
          controller.close();
        } else {
          controller.enqueue(piece.value);
        }
      },
      cancel: (reason) => reader.cancel(reason),
    });
    return new Response(body, { status: response.status, headers: response.headers });
  };
}
