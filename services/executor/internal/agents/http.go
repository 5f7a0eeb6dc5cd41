package agents

import (
	"errors"
	"math"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
)

// readHTTP reads the request of an HTTP tool, and makes the tool. Each mistake is reported at its
// field.
func (ts *tools) readHTTP(o *object, t agent.Tool) (*httptool.Config, agent.Tool) {
	c := httptool.Config{
		Method: o.text("method"), URL: o.text("url"), Query: o.texts("query"), Headers: o.texts("headers"),
		Success: o.distinct("success"), Result: httptool.Result(o.text("result")), MaxBytes: o.integer("maxBytes", 1, math.MaxInt32),
		ShowErrors: o.isTrue("showErrors"),
	}
	if body, ok := o.field("body"); ok {
		if text, plain := body.text(); plain {
			c.Body = httptool.Body(text)
		} else {
			c.BodyTemplate = body.json()
		}
	}
	o.end()
	made, err := httptool.New(t, c, ts.peers)
	if err == nil {
		return &c, made
	}
	f, ok := errors.AsType[*fault.Fault](err)
	if !ok {
		o.mistakeAt("http", "%v", err)
		return &c, t
	}
	for line := range strings.SplitSeq(f.Detail, "\n") {
		field, _, _ := strings.Cut(line, ":")
		field, _, _ = strings.Cut(field, ".")
		o.mistakeAt(field, "%s", line)
	}
	return &c, t
}
