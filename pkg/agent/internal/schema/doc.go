// Package schema checks JSON values against JSON Schemas.
//
// It implements draft 2020-12, the keywords of older drafts with other names or values (definitions, dependencies, items as
// a list, additionalItems, exclusiveMinimum and exclusiveMaximum as booleans, required as a boolean, $recursiveRef), and
// nullable of OpenAPI 3.0. A null keyword counts as missing. format, contentEncoding and other annotations are
// not checked. References must stay within the schema: nothing is ever loaded. A $dynamicRef is a
// $ref. $id and $anchor are compared literally, and the first of two equal ones counts; a relative
// $id is not resolved.
//
// Schemas and values may be hostile. A schema is bounded by its size, its depth and the size of the
// compiled patterns. A check is bounded by its depth and its work: the pairs of schema and value, the
// visited members, the compared bytes and the steps of patterns (regular expressions of ECMA-262). Compile refuses
// a schema that refers to itself for the same value.
// Numbers are compared exactly as decimals, and 1e999999999 costs no more than 1.
package schema
