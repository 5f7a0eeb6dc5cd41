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
// schema by its size and depth, a check by the number of pairs of schema and value
// that it looks at and by its depth. Patterns are RE2, which takes time in proportion
// to the text. References that lead back to themselves without going deeper into the
// value are found when the schema is compiled. Numbers are compared as decimals,
// exactly, and 1e999999999 costs no more than 1.
package schema
