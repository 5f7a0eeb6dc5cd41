package agents

import _ "embed" // the schema

// Schema is the JSON Schema of an agents file (draft 2020-12). Editors use it, and Load checks files by it: it is the one
// place that names the fields, their types and their limits. Load checks more, such as references and files.
//
// Three keywords are not of the standard. errorMessage and patternErrorMessage are sentences for mistakes, which editors show
// too. The format go-duration is what time.ParseDuration reads, above zero.
//
//go:embed schema.json
var Schema []byte
