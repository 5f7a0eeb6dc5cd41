package anthropic

import (
	"encoding/base64"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// checkFile returns the error of an unsupported file.
func checkFile(f agent.File) error {
	_, err := fileBlock(f)
	return err
}

func fileBlock(f agent.File) (block, error) {
	media, _, _ := mime.ParseMediaType(f.MediaType)
	embedded := strings.HasPrefix(f.URL, "data:")
	if !embedded && !strings.HasPrefix(f.URL, "https:") {
		return block{}, model.InvalidRequest("files must have a data: or https: URL")
	}
	var data []byte
	if embedded {
		var ok bool
		if data, ok = model.DecodeDataURL(f.URL); !ok {
			return block{},
				model.InvalidRequest("the file %q has a data: URL that cannot be decoded", f.Filename)
		}
	}
	encoded := base64.StdEncoding.EncodeToString(data)
	switch {
	case strings.HasPrefix(media, "image/") && embedded:
		return block{Type: typeImage, Source: &source{Type: "base64", Data: &encoded, MediaType: media}}, nil
	case strings.HasPrefix(media, "image/"):
		return block{Type: typeImage, Source: &source{Type: "url", URL: f.URL}}, nil
	case media == "application/pdf" && embedded:
		return documentBlock(f, source{Type: "base64", Data: &encoded, MediaType: media}), nil
	case media == "application/pdf":
		return documentBlock(f, source{Type: "url", URL: f.URL}), nil
	case (strings.HasPrefix(media, "text/") || media == "application/json") && embedded && utf8.Valid(data):
		text := string(data)
		return documentBlock(f, source{Type: "text", Data: &text, MediaType: "text/plain"}), nil
	}
	return block{}, model.InvalidRequest("the Messages API accepts images, PDFs and embedded texts, not files of type %s", f.MediaType)
}

func documentBlock(f agent.File, content source) block {
	return block{Type: typeDocument, Source: &content, Title: f.Filename}
}
