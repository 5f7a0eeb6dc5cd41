// Package docs embeds the manual for the gateway.
package docs

import "embed"

// Pages are the pages of the manual, in Markdown. README.md is the first one.
//
//go:embed *.md
var Pages embed.FS
