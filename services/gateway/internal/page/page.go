// Package page serves the gateway's own pages: one for talking to the agents, in plain HTML, CSS and
// JavaScript, the console for people who run agents, and the manual. They call no other host and use only
// public routes.
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

// Routes are the chat page with its assets, the console, and the manual.
func Routes() []httpapi.Route {
	return []httpapi.Route{
		file("/{$}", "assets/index.html", "text/html; charset=utf-8"),
		file("/assets/chat.css", "assets/chat.css", "text/css; charset=utf-8"),
		file("/assets/chat.js", "assets/chat.js", "text/javascript; charset=utf-8"),
		file("/assets/message.js", "assets/message.js", "text/javascript; charset=utf-8"),
		file("/assets/ask.js", "assets/ask.js", "text/javascript; charset=utf-8"),
		file("/assets/dom.js", "assets/dom.js", "text/javascript; charset=utf-8"),
		file("/assets/icon.svg", "assets/icon.svg", "image/svg+xml"),
		file("/assets/manual.css", "assets/manual.css", "text/css; charset=utf-8"),
		{Method: http.MethodGet, Pattern: manualPattern, Handler: serveManual, Public: true},
		{Method: http.MethodGet, Pattern: consolePattern, Handler: serveConsole, Public: true},
	}
}

func file(pattern, name, contentType string) httpapi.Route {
	serve := func(w http.ResponseWriter, _ *http.Request, _ string) error {
		text, err := assets.ReadFile(name)
		if err != nil {
			return err
		}
		write(w, text, contentType, "no-cache")
		return nil
	}
	return httpapi.Route{Method: http.MethodGet, Pattern: pattern, Handler: serve, Public: true}
}

func write(w http.ResponseWriter, text []byte, contentType, caching string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", caching)
	_, _ = w.Write(text) // the client may have closed the connection
}
