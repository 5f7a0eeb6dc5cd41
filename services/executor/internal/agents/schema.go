package agents

import _ "embed" // the schema

// Schema is the JSON Schema of an agents file (draft 2020-12), for editors. It knows the fields and their types; Load
// checks more.
//
//go:embed schema.json
var Schema []byte
