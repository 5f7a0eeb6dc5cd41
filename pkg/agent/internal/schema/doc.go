// Package schema holds JSON values against JSON Schemas.
//
// It takes the keywords of draft 2020-12, and those of draft-07 that have other
// names there (definitions, dependencies, items as a list, additionalItems).
// format, contentEncoding and the like describe and check nothing. References lead
// within the schema: nothing is ever loaded. A $dynamicRef is a $ref. Names ($id,
// $anchor) are compared as they are written, and of two that are the same the first
// counts: a relative $id is not resolved against those around it.
//
// Schemas and values may be hostile. Everything that could grow is bounded: the
// schema by its size, its depth and the size of its patterns' programs, a check by its
// depth and its work: the pairs of schema and value that it looks at, the members that it
// goes through, the bytes that it compares. Patterns are RE2, which takes time in
// proportion to the text and to the program. References that lead back to themselves without going deeper into the
// value are found when the schema is compiled. Numbers are compared as decimals,
// exactly, and 1e999999999 costs no more than 1.
package schema
