// A fetch that keeps what passes: the requests, and the chunks of every UI
// message stream.

// So many POSTs no scenario has: an app that sends on by itself for ever is
// stopped there.
const postLimit = 12;

export class Recorder {
  posts = [];
  streams = [];
  open = 0;

  // breakWhen makes the next stream break off when the promise that it gives resolves,
  // with the error of a browser whose network is gone.
  breakWhen = null;

  // stallBehind makes the next stream stall behind so many events: the network takes
  // nothing more, and nobody closes the connection.
  stallBehind = -1;
  stalled = false;

  // lose makes the next POST get nowhere ("request"), or its answer ("answer").
  lose = '';

  fetch = async (url, init = {}) => {
    const chatted = init.method === 'POST' && new URL(url).pathname === '/chat';
    if (chatted && this.posts.length >= postLimit) {
      throw new Error(`the chat posts more than ${postLimit} times`);
    }
    const post = chatted ? told(init.body) : null;
    if (post) {
      this.posts.push(post);
    }
    this.open++;
    let response;
    try {
      response = await (chatted ? this.deliver(url, init) : fetch(url, init));
    } catch (error) {
      this.open--;
      throw error;
    }
    if (post) {
      post.status = response.status;
      post.run = response.headers.get('x-holdfast-run-id') ?? '';
    }
    if (!response.body) {
      this.open--;
      return response;
    }
    const stream = { request: `${init.method ?? 'GET'} ${new URL(url).pathname}`, text: '' };
    if (response.headers.get('content-type')?.startsWith('text/event-stream')) {
      this.streams.push(stream);
    }
    return new Response(this.watch(response.body, stream), { status: response.status, headers: response.headers });
  };

  async deliver(url, init) {
    const { lose } = this;
    this.lose = '';
    if (lose === 'request') {
      throw new TypeError('network error');
    }
    const response = await fetch(url, init);
    if (lose === 'answer') {
      await response.body.cancel();
      throw new TypeError('network error');
    }
    return response;
  }

  watch(body, stream) {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    const broken = this.breakWhen?.().then(() => null);
    this.breakWhen = null;
    const behind = this.stallBehind;
    this.stallBehind = -1;
    const stall = () => {
      this.stalled = true;
      return new Promise(() => {});
    };
    let ended = false;
    const end = () => {
      this.open -= ended ? 0 : 1;
      ended = true;
    };
    return new ReadableStream({
      async pull(controller) {
        try {
          const piece = await Promise.race([...(broken ? [broken] : []), reader.read()]);
          if (piece === null) {
            await reader.cancel();
            throw new TypeError('network error');
          }
          const { done, value } = piece;
          if (done) {
            end();
            controller.close();
            return;
          }
          const before = eventsOf(stream.text);
          const text = decoder.decode(value, { stream: true });
          if (behind >= 0 && eventsOf(stream.text + text) >= behind) {
            const head = firstEvents(text, behind - before);
            stream.text += head;
            controller.enqueue(new TextEncoder().encode(head));
            await stall();
          }
          stream.text += text;
          controller.enqueue(value);
        } catch (error) {
          end();
          controller.error(error);
        }
      },
      cancel(reason) {
        end();
        return reader.cancel(reason);
      },
    });
  }

  // The chunks of each stream; what was cut in its middle is left out.
  recorded() {
    return this.streams.map(({ request, text, major }) => ({ request, major, chunks: chunksOf(text) }));
  }
}

// eventsOf counts the whole events of a text, without comments.
const eventsOf = (text) => text.split('\n\n').slice(0, -1).filter((event) => event.includes('data: ')).length;

// firstEvents is the text up to the end of its nth event.
function firstEvents(text, n) {
  let at = 0;
  for (let events = 0; events < n; ) {
    const end = text.indexOf('\n\n', at) + 2;
    events += eventsOf(text.slice(at, end));
    at = end;
  }
  return text.slice(0, at);
}

// told is what a body of POST /chat says.
function told(body) {
  const { trigger = '', messageId = '', messages, message } = JSON.parse(body);
  const last = message ?? messages?.at(-1);
  return { trigger, messageId, messages: messages?.length ?? 0, role: last?.role ?? '' };
}

function chunksOf(text) {
  return text
    .split('\n\n')
    .slice(0, -1)
    .flatMap((event) => event.split('\n').filter((line) => line.startsWith('data: ')))
    .map((line) => line.slice('data: '.length))
    .filter((data) => data !== '[DONE]')
    .map((data) => JSON.parse(data));
}
