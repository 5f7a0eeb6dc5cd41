package model

import (
	"regexp"
	"strconv"
)

// Place is a part of a provider's request: the number of the message, and of the part in its content. Both begin at 0.
type Place struct{ Message, Part int }

// Places says which files the parts of one request are. Providers name a part that they refuse by its place in the request, which has
// more, fewer and other messages than the conversation.
type Places map[Place]FileRef

// NameFiles returns a yield function that adds the files of named places to refusals.
func (p Places) NameFiles(yield func(Event, error) bool) func(Event, error) bool {
	return func(e Event, err error) bool {
		if failure, ok := err.(*Error); ok && failure.Refusal != nil { //nolint:errorlint // wires yield it as it is
			p.nameFiles(failure.Refusal)
		}
		return yield(e, err)
	}
}

// nameFiles adds the files at the refusal's places. Such a refusal is about these files, whatever its words say.
func (p Places) nameFiles(r *Refusal) {
	if r.Reason == FilesTooMany || r.Reason == FileKindNotTaken {
		return // the place is only the first of many
	}
	for _, place := range r.Places {
		file, ok := p[place]
		if !ok {
			continue
		}
		switch r.Part {
		case RefusedContext, RefusedSize:
			// The numbers count the encoded file.
			*r = Refusal{Part: RefusedFile, Reason: FileTooLarge, Places: r.Places, Files: r.Files}
		case RefusedContent:
			*r = Refusal{Part: RefusedFile, Reason: FileBadForContent, Places: r.Places, Files: r.Files}
		case RefusedFile:
		default:
			*r = Refusal{Part: RefusedFile, Places: r.Places, Files: r.Files}
		}
		r.Files = append(r.Files, file)
	}
}

// path matches the place of a part in the words of providers: messages.3.content.1, messages[3].content[1], contents[3].parts[1],
// ["body","messages",3,"content",1].
var path = regexp.MustCompile(`\b(?:messages|contents|input)\b[^A-Za-z0-9]{1,4}(\d{1,9})[^A-Za-z0-9]{1,4}(?:content|` +
	`parts)\b[^A-Za-z0-9]{1,4}(\d{1,9})\b`)

// placesIn returns the different places that a text names.
func placesIn(text string) (places []Place) {
	known := map[Place]bool{}
	for _, found := range path.FindAllStringSubmatch(text, -1) {
		var place Place
		place.Message, _ = strconv.Atoi(found[1]) // digits
		place.Part, _ = strconv.Atoi(found[2])
		if !known[place] && len(places) < maxPlaces {
			known[place] = true
			places = append(places, place)
		}
	}
	return places
}

// maxPlaces limits the places of one refusal.
const maxPlaces = 100
