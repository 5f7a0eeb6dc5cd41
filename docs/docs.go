// Package docs has the manual, so that a gateway can serve it.
package docs

import "embed"

// Pages are the pages of the manual, in Markdown. README.md is the first one.
//
//go:embed *.md
var Pages embed.FS
