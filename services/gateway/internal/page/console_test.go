package page_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/page"
)

const (
	maxConsoleBytes = 200_000 // all files, gzipped
	policy          = "default-src 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none'; form-action 'self'"
)

// get calls the console's route.
func get(t *testing.T, path string) (*httptest.ResponseRecorder, error) {
	t.Helper()
	mux := http.NewServeMux()
	var failed error
	for _, route := range page.Routes() {
		mux.HandleFunc(route.Method+" "+route.Pattern, func(w http.ResponseWriter, r *http.Request) { failed = route.Handler(w, r, "") })
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w, failed
}

func TestEveryPathOfTheConsoleIsItsPageThatIsNotCached(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/console/", "/console/sessions/a%2Fb/timeline", "/console/assets", "/console/nowhere"} {
		response, err := get(t, path)
		text := response.Body.String()
		if err != nil || response.Code != http.StatusOK || !strings.Contains(text, "<title>Holdfast console</title>") {
			t.Errorf("%s: got %d %v %q", path, response.Code, err, text)
		}
		if got := response.Header().Get("Cache-Control"); got != "no-cache" {
			t.Errorf("%s: got Cache-Control %q", path, got)
		}
		if got := response.Header().Get("Content-Security-Policy"); got != policy {
			t.Errorf("%s: got Content-Security-Policy %q", path, got)
		}
	}
}

func TestTheAssetsOfTheConsoleAreCachedForEver(t *testing.T) {
	t.Parallel()
	index, _ := get(t, "/console/")
	assets := regexp.MustCompile(`"(/console/assets/[^"]+)"`).FindAllStringSubmatch(index.Body.String(), -1)
	if len(assets) < 2 {
		t.Fatalf("the page names the assets %q, want a script and a style sheet", assets)
	}
	for _, asset := range assets {
		response, err := get(t, asset[1])
		if err != nil || response.Header().Get("Cache-Control") != "public, max-age=31536000, immutable" || response.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: got %v, headers %v", asset[1], err, response.Header())
		}
	}
}

func TestAnUnknownAssetOfTheConsoleIsNotFound(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/console/assets/index-old.js", "/console/assets/", "/console/assets/%2E%2E/index.html", "/console/assets/a%2F..%2Fb.js"} {
		if response, err := get(t, path); fault.ReasonOf(err) != "ROUTE_NOT_FOUND" {
			t.Errorf("%s: got %v %q", path, err, response.Body)
		}
	}
}

func TestTheConsoleIsSmallAndHasNoInlineScriptsOrStyles(t *testing.T) {
	t.Parallel()
	total := 0
	err := filepath.WalkDir("console", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".html") && regexp.MustCompile(`<style|style=|<script[^>]*>[^<]|\son\w+=`).Match(text) {
			t.Errorf("%s has an inline script or style: %s", path, text)
		}
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		if _, err := w.Write(text); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		total += zipped.Len()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if total > maxConsoleBytes {
		t.Errorf("the console has %d bytes, gzipped, want at most %d", total, maxConsoleBytes)
	}
	t.Logf("%d bytes, gzipped", total)
}
