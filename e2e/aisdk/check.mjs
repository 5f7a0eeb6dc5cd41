// Checks recorded streams against what versions of `ai` accept.
//
// options is {streams: [{name, major, chunks}]}; the result counts the chunks that
// each version has seen, and lists what it refused.
const versions = {
  5: [bySchema('ai5'), byTransport('ai500')],
  6: [bySchema('ai6'), bySchema('ai600')],
  7: [bySchema('ai')],
};

export async function check({ streams }) {
  const seen = {};
  const refused = [];
  for (const { name, major, chunks } of streams) {
    for (const version of versions[major]) {
      const { sdk, wrong } = await version(chunks);
      seen[sdk] = (seen[sdk] ?? 0) + chunks.length;
      refused.push(...wrong.map((what) => `${name}, for ${sdk}: ${what}`));
    }
  }
  return { seen, refused };
}

// bySchema holds each chunk against the schema that the package exports.
function bySchema(sdk) {
  return async (chunks) => {
    const { uiMessageChunkSchema, asSchema } = await import(sdk);
    const schema = asSchema(uiMessageChunkSchema);
    const wrong = [];
    for (const chunk of chunks) {
      const { success, error } = await schema.validate(chunk);
      if (!success) {
        wrong.push(`${JSON.stringify(chunk)}: ${error.message}`);
      }
    }
    return { sdk, wrong };
  };
}

// byTransport sends the chunks through the package's transport, which checks
// them against a schema that the package does not export.
function byTransport(sdk) {
  return async (chunks) => {
    const { DefaultChatTransport } = await import(sdk);
    const body = chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join('');
    const transport = new DefaultChatTransport({ api: 'http://recorded/chat', fetch: async () => new Response(body) });
    let passed = 0;
    try {
      for await (const _ of await transport.reconnectToStream({ chatId: 'recorded' })) {
        passed++;
      }
    } catch (error) {
      return { sdk, wrong: [`behind ${passed} chunks: ${error.message}`] };
    }
    return { sdk, wrong: passed === chunks.length ? [] : [`${passed} of ${chunks.length} chunks passed`] };
  };
}
