package page_test

import (
	"io/fs"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/docs"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

var localLink = regexp.MustCompile(`href="([^":]*)"`)

func TestEachPageOfTheManualIsServedAndItsLinksLeadToServedPages(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(docs.Pages, "*.md")
	if err != nil || len(files) < 10 {
		t.Fatalf("the manual has the files %q: %v", files, err)
	}
	for _, file := range files {
		path := "/manual/" + strings.TrimSuffix(strings.TrimSuffix(file, ".md"), "README")
		response, err := get(t, path)
		text := response.Body.String()
		if err != nil || response.Code != http.StatusOK || !strings.Contains(text, "<h1 ") || !strings.Contains(text, " · Holdfast manual</title>") {
			t.Errorf("%s: got %d %v", path, response.Code, err)
		}
		if got := response.Header().Get("Content-Security-Policy"); got != policy {
			t.Errorf("%s: got Content-Security-Policy %q", path, got)
		}
		for _, link := range localLink.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(link[1], "#")
			if target == "" {
				target = path
			}
			response, err := get(t, target)
			if err != nil || response.Code != http.StatusOK {
				t.Errorf("%s: the link %s gives %d %v", path, link[1], response.Code, err)
			} else if anchor != "" && !strings.Contains(response.Body.String(), `id="`+anchor+`"`) {
				t.Errorf("%s: the link %s leads to no heading", path, link[1])
			}
		}
	}
}

func TestAnUnknownPageOfTheManualIsNotFound(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/manual/nothing", "/manual/README.md", "/manual/..%2Fdocs.go"} {
		if response, err := get(t, path); fault.ReasonOf(err) != "ROUTE_NOT_FOUND" {
			t.Errorf("%s: got %v %q", path, err, response.Body)
		}
	}
}
