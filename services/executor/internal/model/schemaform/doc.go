// Package schemaform rewrites JSON Schemas into forms that model providers accept.
//
// Tools come from many hands: MCP servers publish schemas of draft 4 to 2020-12, of OpenAPI, and of generators with
// habits of their own. A provider refuses a request as a whole if it refuses one schema, so each schema that is sent
// must keep the provider's rules. Rules describes them as data. A form may accept more than its original, never less:
// arguments are validated against the original later.
//
// Every form is a schema of draft 2020-12 whose root is an object without alternatives. Rules of a provider narrow
// it further. A schema that keeps the rules already is returned unchanged, byte for byte.
package schemaform
