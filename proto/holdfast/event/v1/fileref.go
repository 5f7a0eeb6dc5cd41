package eventv1

import "strings"

// fileScheme is the scheme of FilePart.url for files of the state service.
const fileScheme = "holdfast-file:"

// FileURL returns the url of a FilePart that refers to a file of the state service.
func FileURL(fileID string) string { return fileScheme + fileID }

// FileID returns the id of the file that the url of a FilePart refers to. ok is false for other urls.
func FileID(url string) (id string, ok bool) { return strings.CutPrefix(url, fileScheme) }
