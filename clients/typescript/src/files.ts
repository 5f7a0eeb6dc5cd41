import type { Holdfast } from './index.js';
import type { components } from './schema.js';

/** Uploaded is a stored file. Its `url` is for the file part of a message, and for everybody who shall see the file. */
export type Uploaded = components['schemas']['Uploaded'];

const unknownType = 'application/octet-stream';

/** Files stores files ahead of messages, and reads them. A file without a message is deleted after a day. */
export class Files {
  constructor(readonly client: Holdfast) {}

  /** upload stores a file. The media type is that of a Blob, unless `mediaType` names another. */
  async upload(
    content: Blob | Uint8Array<ArrayBuffer> | ArrayBuffer,
    options: { mediaType?: string; signal?: AbortSignal } = {},
  ): Promise<Uploaded> {
    const type = options.mediaType ?? (content instanceof Blob && content.type !== '' ? content.type : unknownType);
    // A repetition stores a second file, which goes with the day.
    return this.client.retry(
      () =>
        this.client.http.POST('/files', {
          body: '',
          bodySerializer: () => content,
          headers: { 'content-type': type },
          signal: options.signal ?? null,
        }),
      options.signal,
    );
  }

  /** download reads a file by its id or its URL. Whoever knows the id may read it. */
  async download(file: string, signal?: AbortSignal): Promise<Blob> {
    const id = file.slice(file.lastIndexOf('/') + 1);
    const call = () =>
      this.client.http.GET('/files/{id}', {
        params: { path: { id } },
        parseAs: 'blob' as const,
        signal: signal ?? null,
      });
    return this.client.retry(async () => {
      const answer = await call();
      return { data: answer.data as unknown as Blob, error: answer.error, response: answer.response };
    }, signal);
  }
}
