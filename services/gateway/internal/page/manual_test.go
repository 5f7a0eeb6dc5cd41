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
		response, text, err := get(t, path)
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(text, "<h1 ") || !strings.Contains(text, " · Holdfast manual</title>") {
			t.Errorf("%s: got %d %v", path, response.StatusCode, err)
		}
		if got := response.Header.Get("Content-Security-Policy"); got != policy {
			t.Errorf("%s: got Content-Security-Policy %q", path, got)
		}
		for _, link := range localLink.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(link[1], "#")
			if target == "" {
				target = path
			}
			response, there, err := get(t, target)
			if err != nil || response.StatusCode != http.StatusOK {
				t.Errorf("%s: the link %s gives %d %v", path, link[1], response.StatusCode, err)
			} else if anchor != "" && !strings.Contains(there, `id="`+anchor+`"`) {
				t.Errorf("%s: the link %s leads to no heading", path, link[1])
			}
		}
	}
}

func TestAnUnknownPageOfTheManualIsNotFound(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/manual/nothing", "/manual/README.md", "/manual/..%2Fdocs.go"} {
		if _, text, err := get(t, path); fault.ReasonOf(err) != "ROUTE_NOT_FOUND" {
			t.Errorf("%s: got %v %q", path, err, text)
		}
	}
}
