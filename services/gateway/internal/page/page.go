// Package page serves a page for talking to the agents: plain HTML, CSS and JavaScript, which calls
// no other host and uses only public routes.
package page

import (
	"embed"
	"net/http"

	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

//go:embed assets
var assets embed.FS

// policy lets the page load and call its own origin only. (https://www.w3.org/TR/CSP3/)
const policy = "default-src 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none'; form-action 'self'"

// Routes are the page and its assets.
func Routes() []httpapi.Route {
	return []httpapi.Route{
		file("/{$}", "assets/index.html", "text/html; charset=utf-8"),
		file("/assets/chat.css", "assets/chat.css", "text/css; charset=utf-8"),
		file("/assets/chat.js", "assets/chat.js", "text/javascript; charset=utf-8"),
		file("/assets/message.js", "assets/message.js", "text/javascript; charset=utf-8"),
		file("/assets/ask.js", "assets/ask.js", "text/javascript; charset=utf-8"),
		file("/assets/dom.js", "assets/dom.js", "text/javascript; charset=utf-8"),
		file("/assets/icon.svg", "assets/icon.svg", "image/svg+xml"),
	}
}

func file(pattern, name, contentType string) httpapi.Route {
	serve := func(w http.ResponseWriter, _ *http.Request, _ string) error {
		text, err := assets.ReadFile(name)
		if err != nil {
			return err
		}
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		_, _ = w.Write(text) // the client may have closed the connection
		return nil
	}
	return httpapi.Route{Method: http.MethodGet, Pattern: pattern, Handler: serve, Public: true}
}
