package agents

import (
	"errors"
	"math"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
)

// http reads the request of a tool.
func (r *reader) http(v value, what string) *httptool.Config {
	o := r.object(v, what+": http")
	c := &httptool.Config{
		Method: o.text("method"), URL: o.text("url"), Query: o.textsByName("query"), Headers: o.textsByName("headers"),
		Success: o.texts("success"), Result: httptool.Result(o.text("result")), MaxBytes: o.integer("maxBytes", 1, math.MaxInt32),
	}
	if body, ok := o.field("body"); ok {
		if text, plain := body.text(); plain {
			c.Body = httptool.Body(text)
		} else {
			c.BodyTemplate = r.json(body)
		}
	}
	o.end()
	return c
}

// httpTool makes the tool of a request. Each mistake of it is told at its field.
func (r *reader) httpTool(o *object, t agent.Tool, c httptool.Config) agent.Tool {
	made, err := httptool.New(t, c, r.known.HTTP)
	if err == nil {
		return made
	}
	at, _ := o.field("http")
	request := &object{r: r, at: at, what: o.what + ": http", wrong: o.wrong}
	request.fields, _ = r.members(at, maxDepth)
	f, ok := errors.AsType[*fault.Fault](err)
	if !ok {
		request.mistake("http", "%v", err)
		return t
	}
	for line := range strings.SplitSeq(f.Detail, "\n") {
		field, _, _ := strings.Cut(line, ":")
		field, _, _ = strings.Cut(field, ".")
		request.mistake(field, "%s", line)
	}
	return t
}
