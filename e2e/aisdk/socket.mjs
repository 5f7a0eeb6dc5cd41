// The WebSocket of Node's package ws behind the transport of `ai` 7, as a
// browser would offer it: it can set no headers, so that the key is a
// subprotocol.
import WebSocket from 'ws';

// A line is a transport's way to the gateway: its sockets, which the test may cut,
// and the frames that came.
export class Line {
  sockets = [];
  sent = [];
  frames = [];

  constructor(url, key) {
    this.url = url;
    this.protocols = ['holdfast.v2', ...(key ? [`holdfast.key.${key}`] : [])];
  }

  // Resets the connection that is open.
  cut() {
    this.sockets.at(-1).terminate();
  }

  get webSocket() {
    const line = this;
    return class extends WebSocket {
      constructor(url, protocols) {
        super(url, protocols);
        line.sockets.push(this);
        this.on('message', (frame) => line.frames.push(JSON.parse(frame)));
      }

      send(frame) {
        line.sent.push(JSON.parse(frame));
        super.send(frame);
      }
    };
  }

  // The chunks of each request, as streams.
  streams() {
    const streams = new Map();
    for (const { type, requestId, chunk } of this.frames) {
      if (type === 'chunk') {
        streams.set(requestId, [...(streams.get(requestId) ?? []), chunk]);
      }
    }
    return [...streams.values()];
  }
}

export function socketTransport(sdk, line, options) {
  return new sdk.WebSocketChatTransport({ ...options, url: line.url, protocols: line.protocols, webSocket: line.webSocket });
}
