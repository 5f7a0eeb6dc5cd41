// Package openapi serves the OpenAPI description of all routes. Package openapigen writes it.
package openapi

import (
	_ "embed"
	"net/http"

	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// Document is the description, in JSON.
//
//go:embed openapi.json
var Document []byte

// Routes are the routes of this package.
func Routes() []httpapi.Route {
	return []httpapi.Route{{Method: http.MethodGet, Pattern: "/openapi.json", Handler: serve, Public: true, About: httpapi.About{
		Name: "getOpenAPI", Summary: "Returns this description.",
		Answers: []httpapi.Answer{{Status: http.StatusOK, About: "an OpenAPI document", Body: map[string]any{}}},
	}}}
}

func serve(w http.ResponseWriter, _ *http.Request, _ string) error {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(Document) // the client may have closed the connection
	return nil
}
