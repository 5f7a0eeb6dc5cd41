package files

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

const dataScheme = "data:"

// maxDataHeader bounds the part of a data: URL before its data.
const maxDataHeader = 1 << 10

func isDataURL(url string) bool {
	return len(url) >= len(dataScheme) && strings.EqualFold(url[:len(dataScheme)], dataScheme)
}

// dataURL decodes a data: URL (RFC 2397) as it arrives. Both alphabets of base64 occur in practice, with and without
// padding.
type dataURL struct {
	to        *content
	mediaType string // once the header is complete; "" if it has none

	header  []byte
	inData  bool
	base64  bool
	escape  []byte // an incomplete %XX
	group   [4096]byte
	grouped int // bytes in group
	padded  bool
}

// Write decodes the next bytes of the URL. Invalid (FILE_INVALID), and the faults of content.
func (d *dataURL) Write(p []byte) (int, error) {
	for i, c := range p {
		if d.inData {
			if err := d.data(p[i:]); err != nil {
				return 0, err
			}
			break
		}
		if c == ',' {
			d.readHeader()
			continue
		}
		if d.header = append(d.header, c); len(d.header) > maxDataHeader {
			return 0, fileInvalid("a data: URL has no comma after its media type")
		}
	}
	return len(p), nil
}

func (d *dataURL) readHeader() {
	d.inData = true
	mediaType := string(d.header[len(dataScheme):])
	if at := strings.LastIndexByte(mediaType, ';'); at >= 0 && strings.EqualFold(strings.TrimSpace(mediaType[at+1:]), "base64") {
		mediaType, d.base64 = mediaType[:at], true
	}
	if d.mediaType = strings.TrimSpace(mediaType); strings.HasPrefix(d.mediaType, ";") {
		d.mediaType = "text/plain" + d.mediaType
	}
}

// data decodes escapes.
func (d *dataURL) data(p []byte) error {
	for _, c := range p {
		switch {
		case len(d.escape) > 0:
			if d.escape = append(d.escape, c); len(d.escape) < len("%XX") {
				continue
			}
			var plain [1]byte
			if _, err := hex.Decode(plain[:], d.escape[1:]); err != nil {
				return fileInvalid("a data: URL has the escape %q", d.escape)
			}
			d.escape = d.escape[:0]
			c = plain[0]
		case c == '%':
			d.escape = append(d.escape, c)
			continue
		}
		if err := d.add(c); err != nil {
			return err
		}
	}
	return nil
}

// add adds a byte without escapes.
func (d *dataURL) add(c byte) error {
	if d.base64 {
		switch c {
		case '-':
			c = '+'
		case '_':
			c = '/'
		case '\r', '\n', ' ', '\t':
			return nil
		case '=':
			d.padded = true
			return nil
		}
		if d.padded {
			return fileInvalid("a data: URL has base64 behind its padding")
		}
	}
	d.group[d.grouped] = c
	if d.grouped++; d.grouped < len(d.group) {
		return nil
	}
	return d.flush()
}

func (d *dataURL) flush() error {
	group := d.group[:d.grouped]
	d.grouped = 0
	if d.base64 {
		n, err := base64.RawStdEncoding.Decode(group, group)
		if err != nil {
			return fileInvalid("a data: URL is not base64")
		}
		group = group[:n]
	}
	_, err := d.to.Write(group)
	return err
}

// end decodes the rest. Invalid (FILE_INVALID), and the faults of content.
func (d *dataURL) end() error {
	if !d.inData || len(d.escape) > 0 {
		return fileInvalid("a data: URL is incomplete")
	}
	return d.flush()
}
