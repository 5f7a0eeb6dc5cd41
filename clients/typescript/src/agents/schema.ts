/**
 * Schemas of inputs, outputs and states. Any library with Standard Schema will do: its `~standard.validate` checks
 * values, and its `~standard.jsonSchema` (Standard JSON Schema) describes them. See https://standardschema.dev.
 */

/** JSONSchema is a JSON Schema, draft 2020-12. */
export type JSONSchema = { readonly [keyword: string]: unknown };

/** Schema is what this package needs of a Standard Schema. Zod, Valibot and ArkType have it. */
export interface Schema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    readonly validate: (value: unknown) => Validated<Output> | Promise<Validated<Output>>;
  };
}

type Validated<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: ReadonlyArray<Issue> };

interface Issue {
  readonly message: string;
  readonly path?: ReadonlyArray<PropertyKey | { readonly key: PropertyKey }> | undefined;
}

/** What a caller gives, before defaults and transforms apply. */
export type InputOf<S extends Schema> = NonNullable<S['~standard']['types']>['input'];
/** What a function receives. */
export type OutputOf<S extends Schema> = NonNullable<S['~standard']['types']>['output'];

interface Converter {
  readonly input: (options: { target: string }) => JSONSchema;
  readonly output: (options: { target: string }) => JSONSchema;
}

const dialect = 'draft-2020-12';

/**
 * jsonSchema makes a schema of a JSON Schema. Without a validator, the runtime alone checks values, and `T` is their
 * type: `jsonSchema<{ order: string }>({ type: 'object', … })`. A validator is a schema of a library that cannot
 * describe
 * itself: `jsonSchema(zodToJsonSchema(order), order)` for Zod 3, `jsonSchema(z.toJSONSchema(order, { io: 'input' }),
 * order)`
 * for Zod 4.0 and 4.1.
 */
export function jsonSchema<T>(schema: JSONSchema): Schema<T, T>;
export function jsonSchema<Input, Output>(schema: JSONSchema, validator: Schema<Input, Output>): Schema<Input, Output>;
export function jsonSchema(schema: JSONSchema, validator?: Schema): Schema {
  const converter: Converter = { input: () => schema, output: () => schema };
  const validate = validator
    ? (value: unknown) => validator['~standard'].validate(value)
    : (value: unknown) => ({ value });
  const standard = { version: 1, vendor: 'holdfast', validate, jsonSchema: converter } as const;
  return { '~standard': standard };
}

/** describe returns the JSON Schema of a schema. `what` names it in mistakes. */
export function describe(schema: Schema, side: 'input' | 'output', what: string): JSONSchema {
  const standard = schema?.['~standard'] as (Schema['~standard'] & { jsonSchema?: Converter }) | undefined;
  if (!standard || typeof standard.validate !== 'function') {
    throw new TypeError(
      `${what} is not a schema. Give a schema of Zod, Valibot or ArkType, or jsonSchema({ type: 'object', … }).`,
    );
  }
  if (!standard.jsonSchema) {
    throw new TypeError(
      `${what}: this version of ${standard.vendor} cannot describe its schemas as JSON Schema. ` +
        'Use zod 4.2 or later, arktype 2.1.28 or later, toStandardJsonSchema of @valibot/to-json-schema, ' +
        'or jsonSchema(DESCRIPTION, SCHEMA).',
    );
  }
  try {
    const { $schema: _, ...described } = standard.jsonSchema[side]({ target: dialect });
    return described;
  } catch (error) {
    throw new TypeError(`${what} has no JSON Schema: ${(error as Error).message}`, { cause: error });
  }
}

/** describeObject is describe for a schema that must have the type object. */
export function describeObject(schema: Schema, side: 'input' | 'output', what: string): JSONSchema {
  const described = describe(schema, side, what);
  if (described.type !== 'object') throw new TypeError(`${what} must describe an object, such as z.object({ … }).`);
  return described;
}

/** check returns the value with defaults and transforms, or the problems as one line each. */
export async function check(schema: Schema, value: unknown): Promise<{ value: unknown } | { problems: string }> {
  const checked = await schema['~standard'].validate(value);
  if (!checked.issues) return { value: checked.value };
  const line = ({ message, path }: Issue) => {
    const at = (path ?? []).map((part) => String(typeof part === 'object' ? part.key : part)).join('.');
    return at ? `${at}: ${message}` : message;
  };
  return { problems: checked.issues.map(line).join('\n') };
}
