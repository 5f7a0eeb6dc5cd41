package page

import (
	"embed"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// console is the build of clients/console, made by `npm --prefix clients/console run build`.
//
//go:embed console
var console embed.FS

const consolePattern = "/console/{path...}"

// The name of an asset has a hash of its content.
const forever = "public, max-age=31536000, immutable"

// contentTypes has the types of the assets. The system's table of types may lack some.
var contentTypes = map[string]string{
	".js":  "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8",
}

// serveConsole serves the assets of the console, and its page for every other path: the script of the page shows
// what the path names. NotFound (ROUTE_NOT_FOUND): there is no such asset, perhaps because the page is of another
// version.
func serveConsole(w http.ResponseWriter, r *http.Request, _ string) error {
	name := r.PathValue("path")
	if !strings.HasPrefix(name, "assets/") {
		text, err := console.ReadFile("console/index.html")
		if err != nil {
			return err
		}
		write(w, text, "text/html; charset=utf-8", "no-cache")
		return nil
	}
	contentType, known := contentTypes[path.Ext(name)]
	text, err := console.ReadFile("console/" + name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) || !known {
		return fault.New(fault.NotFound, "ROUTE_NOT_FOUND", "the console has no asset %s", name)
	}
	if err != nil {
		return err
	}
	write(w, text, contentType, forever)
	return nil
}
