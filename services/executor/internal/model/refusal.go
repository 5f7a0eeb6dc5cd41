package model

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// Refusal says which part of a request a provider refused.
type Refusal struct {
	Part RefusedPart
	// Limit is the provider's limit, and Count the request's size, in the provider's unit; 0 if unstated.
	Limit, Count int64
	// Reason is why a file was refused; empty if the provider did not say.
	Reason FileProblem
	// Kind is the kind of refused files: image, document, or empty for any.
	Kind FileKind
	// Files are the refused files; none if the provider did not say which.
	Files []FileRef
	// Locations are the parts of the provider's request that it named; none if it named none. The wires find the Files by them.
	Locations []Location
	// Name is the refused tool or parameter.
	Name string
	// Tool is the number of the refused tool in Request.Tools, from 1; 0 if the provider named it, or did not say.
	Tool int
}

// RefusedPart is a part of a request.
type RefusedPart string

// The parts. RefusedSomething is a refusal without a known part.
const (
	RefusedSomething RefusedPart = ""
	RefusedContext   RefusedPart = "context"   // too many tokens or messages
	RefusedSize      RefusedPart = "size"      // too many bytes
	RefusedFile      RefusedPart = "file"      // an image or a document, or their number
	RefusedContent   RefusedPart = "content"   // the content policy refuses a message
	RefusedTool      RefusedPart = "tool"      // a tool, or the number of tools
	RefusedParameter RefusedPart = "parameter" // another member of the request
)

// FileKind is a kind of files.
type FileKind string

// The kinds of files.
const (
	KindImage    FileKind = "image"
	KindDocument FileKind = "document"
)

// FileProblem is why a provider refuses a file.
type FileProblem string

// The problems of files.
const (
	FileTooLarge      FileProblem = "too_large"   // in bytes: Limit
	FileTooWide       FileProblem = "too_wide"    // in pixels: Limit
	FileTooLong       FileProblem = "too_long"    // in pages: Limit
	FilesTooMany      FileProblem = "too_many"    // Limit
	FileUnsupported   FileProblem = "unsupported" // its type
	FileUnreadable    FileProblem = "unreadable"  // it is corrupt, or not of its type
	FileUnreachable   FileProblem = "unreachable" // the provider cannot read its address
	FileKindNotTaken  FileProblem = "kind"        // the model takes no files of the kind
	FileBadForContent FileProblem = "content"     // the content policy refuses it
)

// FileRef is the location of a file in Request.Messages.
type FileRef struct {
	MessageID string
	Part      int
}

// IsOf reports whether a file is of the kind.
func (k FileKind) IsOf(f agent.File) bool {
	image := strings.HasPrefix(strings.TrimSpace(strings.ToLower(f.MediaType)), "image/")
	return k == "" || image == (k == KindImage)
}

// SetRefusal recognizes the refusals among the failures of a provider by its own words, and sets e.Refusal. Some servers
// answer a refusal with a status of another kind of failure: then it corrects the code, so that the request is not
// repeated unchanged. param is the member of the request that the provider named, code its name of the error; both may
// be empty. Requests that the model cannot satisfy (CodeUnsupported) have no refusal.
func SetRefusal(e *Error, param, code string) {
	text := code + " " + e.Message
	refusal := refusalOf(text, param)
	switch {
	case e.Code == CodeInvalidRequest:
		if refusal == nil {
			refusal = &Refusal{}
			if e.StatusCode == http.StatusRequestEntityTooLarge {
				refusal.Part = RefusedSize
			}
		}
	case refusal == nil:
		return
	case e.Code == CodeRateLimited && neverFits.MatchString(text):
	case (e.Code == CodeUnavailable || e.Code == CodeOverloaded || e.Code == CodeInvalidResponse) && certain.MatchString(text):
	default:
		return
	}
	refusal.Locations = locationsIn(param + " " + text)
	e.Code = CodeInvalidRequest
	e.Retryable = false
	e.Refusal = refusal
	if refusal.Part == RefusedContext {
		e.Message = ContextTooLong(e.Message)
	}
}

// The words of providers. Each was seen in the wild; the table of the test names them.
var (
	aTool = regexp.MustCompile(`(?i)\btools[.\[]|'tools'|invalid schema for function|input_schema|function_declarations|` +
		`\btools\b.*(array too long|too many)|too many (tools|functions)`)
	toolNumber = regexp.MustCompile(`(?i)(?:tools|function_declarations)[.\[](\d+)`)
	geminiTool = regexp.MustCompile(`(?i)function_declarations\[(\d+)\]`)
	toolByName = regexp.MustCompile(`(?i)(?:function|tool) ['"` + "`" + `]([A-Za-z0-9_.-]+)['"` + "`" + `]`)
	tooLong    = regexp.MustCompile(`(?i)context_length_exceeded|exceed_context_size|string_above_max_length|context[ -_](length|` +
		`window|size|limit)|maximum (context|sequence|prompt) length|context the overflows|context overflow|too many (input |` +
		`total )?tokens|prompt is too long|prompt too long|input is too long|token count|number of (input )?tokens|token limit|` +
		`range of input length|max_new_tokens. must be|tokens.*too large for model|request too large for model|` +
		`'messages': array too long|'input': array too long|string too long|reduce the length|reduce your message size`)
	tooManyBytes = regexp.MustCompile(`(?i)request_too_large|request exceeds the maximum (allowed )?(size|number of bytes)|` +
		`payload size exceeds|request (entity|body|payload)?\s*(is )?too large|content length exceeds`)
	aFile = regexp.MustCompile(`(?i)\bimages?\b|image_|_image|image\(s\)|\bpdfs?\b|\bdocuments?\b|\bmime[ _]?type\b|` +
		`media[ _]type|\bfile(s|_data|_url|_uri|_id)?\b|inline_?data|multimodal|\bmmproj\b|\bvision\b|input_file|input_audio|` +
		`\baudio\b|\bvideo\b`)
	anImage   = regexp.MustCompile(`(?i)image|multimodal|mmproj|vision`)
	aDocument = regexp.MustCompile(`(?i)\bpdf|document|\.file|file_data|input_file`)
	content   = regexp.MustCompile(`(?i)content[ _-]?(filter|policy|management|moderation)|content_filter|invalid_prompt|` +
		`content_policy_violation|data_inspection_failed|inappropriate content|prohibited_content|usage polic(y|ies)|flagged|` +
		`safety (system|filter|reasons)|blocked by|guardrail`)
	aParameter = regexp.MustCompile("(?i)(?:unsupported|unknown|unrecognized|invalid|not support\\w*|does not support|extra inputs?|" +
		"not permitted|not allowed).{0,40}?(?:parameter|argument|value|field|property|input)|" +
		"extra inputs are not permitted|max_(completion_|output_)?tokens.*(too large|" +
		"maximum allowed|must be|at most|supports)|max_tokens: \\d+ > \\d+")
	namedLimit  = regexp.MustCompile(`(?i)(?:maximum (?:context|prompt|sequence) length is|length should be \[\d+,) *(\d+)`)
	quoted      = regexp.MustCompile("['\"`]([A-Za-z_][A-Za-z0-9_.]*)['\"`]")
	maxTokens   = regexp.MustCompile(`(?i)max_(completion_|output_|new_)?tokens|maxOutputTokens`)
	temperature = regexp.MustCompile(`(?i)\btemperature\b`)
	// neverFits matches limits of rate that the request exceeds alone: waiting does not help.
	neverFits = regexp.MustCompile(`(?i)request too large|must be reduced|reduce your message size`)
	// certain matches refusals that some servers answer with the status 500.
	certain = regexp.MustCompile(`(?i)exceeds? the available context|context size has been exceeded|context the overflows|` +
		`context overflow|maximum context length|image input is not supported|not a multimodal model`)
)

// refusalOf returns nil for words that name no part.
func refusalOf(text, param string) *Refusal {
	where := param + " " + text
	switch {
	case aTool.MatchString(where):
		return toolRefusal(where)
	case tooLong.MatchString(text):
		r := &Refusal{Part: RefusedContext}
		r.Limit, r.Count = limitAndCount(text)
		if limit := namedLimit.FindStringSubmatch(text); limit != nil {
			r.Limit, _ = strconv.ParseInt(limit[1], 10, 64) // digits
		}
		if r.Count <= r.Limit {
			r.Count = 0
		}
		return r
	case tooManyBytes.MatchString(text):
		return &Refusal{Part: RefusedSize}
	case aFile.MatchString(where) && !maxTokens.MatchString(param):
		return fileRefusal(where)
	case content.MatchString(text):
		return &Refusal{Part: RefusedContent}
	case maxTokens.MatchString(where) && aParameter.MatchString(where):
		r := &Refusal{Part: RefusedParameter, Name: "max_tokens"}
		r.Limit, r.Count = limitAndCount(text)
		return r
	case temperature.MatchString(where):
		return &Refusal{Part: RefusedParameter, Name: "temperature"}
	case aParameter.MatchString(text) && !strings.HasPrefix(param, "messages") && !strings.HasPrefix(param, "input"):
		if name := quoted.FindStringSubmatch(text); name != nil {
			return &Refusal{Part: RefusedParameter, Name: name[1]}
		}
	}
	return nil
}

func toolRefusal(text string) *Refusal {
	r := &Refusal{Part: RefusedTool}
	number := geminiTool.FindStringSubmatch(text)
	if number == nil {
		number = toolNumber.FindStringSubmatch(text)
	}
	if name := toolByName.FindStringSubmatch(text); name != nil && name[1] != "tools" {
		r.Name = name[1]
	} else if number != nil {
		at, _ := strconv.Atoi(number[1]) // digits
		r.Tool = at + 1
	} else {
		r.Limit, r.Count = limitAndCount(text)
	}
	return r
}

var fileProblems = []struct {
	words   *regexp.Regexp
	problem FileProblem
}{
	{regexp.MustCompile(`(?i)content_policy|content policy|safety`), FileBadForContent},
	{regexp.MustCompile(`(?i)dimension|\bpixels?\b|resolution`), FileTooWide},
	{regexp.MustCompile(`(?i)\bpages?\b`), FileTooLong},
	{regexp.MustCompile(`(?i)too many|at most \d+|fewer than \d+|maximum (number|of \d+) `), FilesTooMany},
	{regexp.MustCompile(`(?i)only supported by certain models|does not support|do not support|not support(ed)? (image|file|pdf|` +
		`vision)|input is not supported|not a multimodal|no support for|cannot (read|process) images`), FileKindNotTaken},
	{regexp.MustCompile(`(?i)download|fetch|retriev|unreachable|timed? ?out|\burl\b`), FileUnreachable},
	{regexp.MustCompile(`(?i)too large|too big|exceeds?|maximum size|\bmb\b|bytes`), FileTooLarge},
	{regexp.MustCompile(`(?i)unsupported|mime|media.?type|format|input should be`), FileUnsupported},
	{regexp.MustCompile(`(?i)process|decode|parse|valid|corrupt|match|base64|empty|no pages`), FileUnreadable},
}

func fileRefusal(text string) *Refusal {
	r := &Refusal{Part: RefusedFile}
	switch {
	case anImage.MatchString(text) && !aDocument.MatchString(text):
		r.Kind = KindImage
	case aDocument.MatchString(text) && !anImage.MatchString(text):
		r.Kind = KindDocument
	}
	for _, p := range fileProblems {
		if p.words.MatchString(text) {
			r.Reason = p.problem
			break
		}
	}
	switch r.Reason {
	case FileTooLarge, FileTooWide, FileTooLong, FilesTooMany:
		r.Limit, r.Count = limitAndCount(text)
		if r.Limit == 0 { // a limit alone
			r.Limit = r.Count
			r.Count = 0
		}
	}
	if r.Reason == FileTooLarge && r.Limit < 1<<10 {
		r.Limit = 0 // in an unknown unit
	}
	return r
}

// number matches separate numbers: neither a part of a path, nor of a name such as gpt-4 or claude-20250101.
var number = regexp.MustCompile(`(?:^|[\s(:\[=>+])(\d{1,3}(?:,\d{3})+|\d+)(?:[\s):\],;.+]|$)`)

// limitAndCount returns the two largest different numbers of a text. With only one number the limit is 0.
func limitAndCount(text string) (limit, count int64) {
	for len(text) > 0 {
		at := number.FindStringSubmatchIndex(text)
		if at == nil {
			break
		}
		n, err := strconv.ParseInt(strings.ReplaceAll(text[at[2]:at[3]], ",", ""), 10, 64)
		text = text[at[3]:]
		switch {
		case err != nil || n == count:
		case n > count:
			limit, count = count, n
		case n > limit:
			limit = n
		}
	}
	return limit, count
}
