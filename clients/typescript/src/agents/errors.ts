/**
 * ToolError is a failure that a tool, a hook or a method gives on purpose. The model reads `message`; users read
 * `publicMessage`, or `message` without one. `code` is for programs. It is not logged; other errors are, and
 * users read "Something went wrong." for them.
 */
export class ToolError extends Error {
  override readonly name = 'ToolError';
  readonly publicMessage: string | undefined;
  readonly code: string | undefined;

  constructor(message: string, options: { publicMessage?: string; code?: string; cause?: unknown } = {}) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined);
    this.publicMessage = options.publicMessage;
    this.code = options.code;
  }
}
