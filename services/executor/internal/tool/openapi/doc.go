// Package openapi makes tools of the operations in an OpenAPI document, version 3.0 or 3.1.
//
// An operation becomes an HTTP tool: package httptool sends its requests, with its limits, retries and allowed hosts. Path,
// query and header parameters are arguments of the tool, and a JSON or form body is the argument body. The schemas that an
// operation refers to become definitions of its input schema, so recursion stays recursion.
//
// Documents may be hostile. A document is bounded by its size, its depth and its values, and a reference leads nowhere outside
// of it. An input schema is bounded by its size: of a larger one the lower levels are left out, and accept any value.
//
// An operation that cannot be a tool takes down only itself. Its Problem says why, and its position where.
package openapi
