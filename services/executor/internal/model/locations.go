package model

import (
	"regexp"
	"strconv"
)

// Location is a part of a provider's request: the number of the message, and of the part in its content. Both begin at 0.
type Location struct{ Message, Part int }

// Locations says which files the parts of one request are. Providers name a part that they refuse by its location in the request, which has
// more, fewer and other messages than the conversation.
type Locations map[Location]FileRef

// NameFiles returns a yield function that adds the files of named locations to refusals.
func (p Locations) NameFiles(yield func(Event, error) bool) func(Event, error) bool {
	return func(e Event, err error) bool {
		if failure, ok := err.(*Error); ok && failure.Refusal != nil { //nolint:errorlint // wires yield it as it is
			p.nameFiles(failure.Refusal)
		}
		return yield(e, err)
	}
}

// nameFiles adds the files at the refusal's locations. Such a refusal is about these files, whatever its words say.
func (p Locations) nameFiles(r *Refusal) {
	if r.Reason == FilesTooMany || r.Reason == FileKindNotTaken {
		return // the location is only the first of many
	}
	for _, location := range r.Locations {
		file, ok := p[location]
		if !ok {
			continue
		}
		switch r.Part {
		case RefusedContext, RefusedSize:
			// The numbers count the encoded file.
			*r = Refusal{Part: RefusedFile, Reason: FileTooLarge, Locations: r.Locations, Files: r.Files}
		case RefusedContent:
			*r = Refusal{Part: RefusedFile, Reason: FileBadForContent, Locations: r.Locations, Files: r.Files}
		case RefusedFile:
		default:
			*r = Refusal{Part: RefusedFile, Locations: r.Locations, Files: r.Files}
		}
		r.Files = append(r.Files, file)
	}
}

// path matches the location of a part in the words of providers: messages.3.content.1, messages[3].content[1], contents[3].parts[1],
// ["body","messages",3,"content",1].
var path = regexp.MustCompile(`\b(?:messages|contents|input)\b[^A-Za-z0-9]{1,4}(\d{1,9})[^A-Za-z0-9]{1,4}(?:content|` +
	`parts)\b[^A-Za-z0-9]{1,4}(\d{1,9})\b`)

// locationsIn returns the different locations that a text names.
func locationsIn(text string) (locations []Location) {
	known := map[Location]bool{}
	for _, found := range path.FindAllStringSubmatch(text, -1) {
		var location Location
		location.Message, _ = strconv.Atoi(found[1]) // digits
		location.Part, _ = strconv.Atoi(found[2])
		if !known[location] && len(locations) < maxLocations {
			known[location] = true
			locations = append(locations, location)
		}
	}
	return locations
}

// maxLocations limits the locations of one refusal.
const maxLocations = 100
