package anthropic

import (
	"encoding/base64"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// checkFile returns the error of an unsupported file.
func checkFile(f agent.File) error {
	_, err := fileBlock(f)
	return err
}

func fileBlock(f agent.File) (anthropic.ContentBlockParamUnion, error) {
	media, _, _ := mime.ParseMediaType(f.MediaType)
	embedded := strings.HasPrefix(f.URL, "data:")
	if !embedded && !strings.HasPrefix(f.URL, "https:") {
		return anthropic.ContentBlockParamUnion{}, model.InvalidRequest("files must have a data: or https: URL")
	}
	var data []byte
	if embedded {
		var ok bool
		if data, ok = model.DecodeDataURL(f.URL); !ok {
			return anthropic.ContentBlockParamUnion{},
				model.InvalidRequest("the file %q has a data: URL that cannot be decoded", f.Filename)
		}
	}
	encoded := base64.StdEncoding.EncodeToString(data)
	switch {
	case strings.HasPrefix(media, "image/") && embedded:
		return anthropic.NewImageBlockBase64(media, encoded), nil
	case strings.HasPrefix(media, "image/"):
		return anthropic.NewImageBlock(anthropic.URLImageSourceParam{URL: f.URL}), nil
	case media == "application/pdf" && embedded:
		return documentBlock(f, anthropic.DocumentBlockParamSourceUnion{OfBase64: &anthropic.Base64PDFSourceParam{Data: encoded}}), nil
	case media == "application/pdf":
		return documentBlock(f, anthropic.DocumentBlockParamSourceUnion{OfURL: &anthropic.URLPDFSourceParam{URL: f.URL}}), nil
	case (strings.HasPrefix(media, "text/") || media == "application/json") && embedded && utf8.Valid(data):
		return documentBlock(f, anthropic.DocumentBlockParamSourceUnion{OfText: &anthropic.PlainTextSourceParam{Data: string(data)}}), nil
	}
	return anthropic.ContentBlockParamUnion{},
		model.InvalidRequest("the Messages API accepts images, PDFs and embedded texts, not files of type %s", f.MediaType)
}

func documentBlock(f agent.File, source anthropic.DocumentBlockParamSourceUnion) anthropic.ContentBlockParamUnion {
	d := &anthropic.DocumentBlockParam{Source: source}
	if f.Filename != "" {
		d.Title = anthropic.String(f.Filename)
	}
	return anthropic.ContentBlockParamUnion{OfDocument: d}
}
