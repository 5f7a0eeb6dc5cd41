package mcptool

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxInline limits the data of images, sound and files in a result, in bytes. Of larger ones only the size is
// reported, because a model would read the data as text.
const maxInline = 4 << 10

// resultOf converts a tool's result: its structured content, its text, or a list of its parts. The text of a
// structured result repeats the content and is left out. The library decodes numbers of structured content as
// float64.
func resultOf(r *mcp.CallToolResult) (any, error) {
	if r.NeedsInput() {
		return nil, errors.New("the MCP server requests more input, which is not supported")
	}
	var texts []string
	var parts, others []any
	for _, c := range r.Content {
		part := partOf(c)
		parts = append(parts, part)
		if text, ok := c.(*mcp.TextContent); ok {
			texts = append(texts, text.Text)
		} else {
			others = append(others, part)
		}
	}
	text := strings.Join(texts, "\n")
	switch {
	case r.IsError && text == "":
		return nil, errors.New("the tool failed without a reason")
	case r.IsError:
		return nil, errors.New(text)
	case r.StructuredContent != nil && len(others) == 0:
		return r.StructuredContent, nil
	case r.StructuredContent != nil:
		return map[string]any{"structuredContent": r.StructuredContent, "content": others}, nil
	case len(others) == 0:
		return text, nil
	}
	return map[string]any{"content": parts}, nil
}

// partOf returns a part in the protocol's form without large data.
func partOf(c mcp.Content) any {
	switch c := c.(type) {
	case *mcp.ImageContent:
		if len(c.Data) > maxInline {
			return omitted("image", c.MIMEType, len(c.Data))
		}
	case *mcp.AudioContent:
		if len(c.Data) > maxInline {
			return omitted("audio", c.MIMEType, len(c.Data))
		}
	case *mcp.EmbeddedResource:
		if c.Resource != nil && len(c.Resource.Blob) > maxInline {
			part := omitted("resource", c.Resource.MIMEType, len(c.Resource.Blob))
			part["uri"] = c.Resource.URI
			return part
		}
	}
	text, err := c.MarshalJSON()
	if err != nil {
		return map[string]any{"type": fmt.Sprintf("%T", c), "omitted": "it cannot be written as JSON"}
	}
	return json.RawMessage(text)
}

func omitted(kind, mediaType string, size int) map[string]any {
	return map[string]any{"type": kind, "mimeType": mediaType, "bytes": size, "omitted": "the data is too large to be shown"}
}
