package openai

import (
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

type attachment struct {
	image bool
	// text is the name and content of an embedded text file. Every model reads text.
	text     string
	embedded bool // the URL is a data: URL
	url      string
	name     string // never empty
}

// newAttachment reads a file. It refuses URLs other than data: and https:.
func newAttachment(f agent.File) (attachment, error) {
	media, _, _ := mime.ParseMediaType(f.MediaType)
	a := attachment{
		image:    strings.HasPrefix(media, "image/"),
		embedded: strings.HasPrefix(f.URL, "data:"),
		url:      f.URL,
		name:     f.Filename,
	}
	if a.name == "" {
		a.name = "file" // the API requires a name with the data
	}
	if !a.embedded && !strings.HasPrefix(f.URL, "https:") {
		return a, model.InvalidRequest("the file %q must have a data: or https: URL", a.name)
	}
	if a.embedded && (strings.HasPrefix(media, "text/") || media == "application/json") {
		data, ok := model.DecodeDataURL(f.URL)
		if !ok || !utf8.Valid(data) {
			return a, model.InvalidRequest("the file %q of type %s is not UTF-8 text", a.name, f.MediaType)
		}
		a.text = a.name + ":\n\n" + string(data)
	}
	return a, nil
}
