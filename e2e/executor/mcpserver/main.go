// Command mcpserver is an MCP server over streamable HTTP, for tests: its tool "add"
// adds two numbers, "hang" tells the ledger that it was called and does not end, and "whose"
// returns the context that came with its call.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// headerLimit is how long a caller may take to ask.
const headerLimit = 5 * time.Second

type addition struct {
	A int `json:"a" jsonschema:"the one number"`
	B int `json:"b" jsonschema:"the other number"`
}

type sum struct {
	Sum int `json:"sum"`
}

type hanging struct {
	Label string `json:"label" jsonschema:"what the ledger is told"`
}

type anyArguments map[string]any

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "mcpserver", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Adds two numbers."},
		func(_ context.Context, _ *mcp.CallToolRequest, in addition) (*mcp.CallToolResult, sum, error) {
			return nil, sum{in.A + in.B}, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "hang", Description: "Does not end."},
		func(ctx context.Context, _ *mcp.CallToolRequest, in hanging) (*mcp.CallToolResult, any, error) {
			body := strings.NewReader(fmt.Sprintf(`{"key": "hang", "label": %q}`, in.Label))
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("MCP_LEDGER"), body)
			if err != nil {
				return nil, nil, err
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				return nil, nil, err
			}
			defer answer.Body.Close()
			<-ctx.Done()
			return nil, nil, ctx.Err()
		})
	mcp.AddTool(server, &mcp.Tool{Name: "whose", Description: "Says whose call it is."},
		func(_ context.Context, r *mcp.CallToolRequest, _ anyArguments) (*mcp.CallToolResult, any, error) {
			told, err := json.Marshal(r.Params.Meta["holdfast.run/context"])
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(told)}}}, nil, err
		})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	s := &http.Server{Addr: os.Getenv("MCP_LISTEN"), Handler: handler, ReadHeaderTimeout: headerLimit}
	fmt.Fprintln(os.Stderr, s.ListenAndServe())
	os.Exit(1)
}
