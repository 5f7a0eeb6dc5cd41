package agents

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// object reads the fields of an object. It knows what it was asked for, so that end can
// tell the fields that nobody has asked for.
type object struct {
	r        *reader
	at       value
	what     string // what it is, for mistakes; may be empty
	fields   []member
	defaults *object // gives the fields that it has not; may be nil
	asked    []string
	wrong    []string // fields with a mistake
}

// object begins to read an object. Anything else is a mistake, and reads as one without fields.
func (r *reader) object(v value, what string) *object {
	fields, ok := r.members(v, maxDepth)
	if !ok && v.node != nil {
		r.mistake(v, "%smust be an object with fields", spaced(what))
	}
	return &object{r: r, at: v, what: what, fields: fields}
}

// spaced puts "what" before a sentence.
func spaced(what string) string {
	if what == "" {
		return ""
	}
	return what + ": "
}

// field gives a field, and whether it is there with a value.
func (o *object) field(name string) (value, bool) {
	if !slices.Contains(o.asked, name) {
		o.asked = append(o.asked, name)
	}
	for _, f := range o.fields {
		if f.name == name {
			f.value.line = f.line
			return f.value, f.value.node != nil
		}
	}
	if o.defaults != nil {
		return o.defaults.field(name)
	}
	return o.at, false
}

// has reports whether a field is there with a value.
func (o *object) has(name string) bool {
	_, ok := o.field(name)
	return ok
}

// mistake notes what is wrong with a field, or with the object where it is not there.
func (o *object) mistake(name, format string, args ...any) {
	at, _ := o.field(name)
	o.wrong = append(o.wrong, name)
	o.r.mistake(at, "%s%s", spaced(o.what), fmt.Sprintf(format, args...))
}

// wants notes that a field has the wrong type.
func (o *object) wants(name, what string) {
	o.mistake(name, "%s must be %s", name, what)
}

func (o *object) text(name string) string {
	v, there := o.field(name)
	text, ok := v.text()
	if there && !ok {
		o.wants(name, "a text; put it in quotes")
	}
	return text
}

// oneOf reads a text that is one of those allowed; empty when it is not there.
func (o *object) oneOf(name string, allowed ...string) string {
	text := o.text(name)
	if text != "" && !slices.Contains(allowed, text) {
		o.mistake(name, "%s is %q, it must be one of %s%s", name, text, strings.Join(allowed, ", "), meant(text, allowed))
		return ""
	}
	return text
}

// integer reads an integer between limits; 0 when it is not there.
func (o *object) integer(name string, lowest, highest int) int {
	v, there := o.field(name)
	i, ok := v.integer()
	switch {
	case there && !ok:
		o.wants(name, "an integer")
	case there && (i < lowest || i > highest):
		o.mistake(name, "%s is %d, it must be between %d and %d", name, i, lowest, highest)
	}
	return i
}

// steps reads a cap on steps: a number, or that there is none.
func (o *object) steps(name string) int {
	if v, _ := o.field(name); v.infinite() {
		return agent.NoMaxSteps
	}
	return o.integer(name, 1, maxSteps)
}

// number reads a number between limits; nil when it is not there.
func (o *object) number(name string, lowest, highest float64) *float64 {
	v, there := o.field(name)
	if !there {
		return nil
	}
	n, ok := v.number()
	switch {
	case !ok:
		o.wants(name, "a number")
	case n < lowest || n > highest:
		o.mistake(name, "%s is %v, it must be between %v and %v", name, n, lowest, highest)
	}
	return &n
}

func (o *object) boolean(name string) bool {
	v, there := o.field(name)
	b, ok := v.node.(*ast.BoolNode)
	if there && !ok {
		o.wants(name, "true or false")
	}
	return ok && b.Value
}

// duration reads a duration above 0; 0 when it is not there.
func (o *object) duration(name string) time.Duration {
	v, there := o.field(name)
	d, ok := v.duration()
	if there && (!ok || d <= 0) {
		o.wants(name, "a duration above 0 like 30s, 5m or 24h")
	}
	return d
}

// list reads the elements of a list.
func (o *object) list(name string) []value {
	v, there := o.field(name)
	items, ok := o.r.items(v)
	if there && !ok {
		o.wants(name, "a list")
	}
	return items
}

// texts reads a list of texts, each at most once.
func (o *object) texts(name string) []string {
	var texts []string
	for _, item := range o.list(name) {
		text, ok := item.text()
		switch {
		case !ok || text == "":
			o.wrong = append(o.wrong, name)
			o.r.mistake(item, "%s%s must be a list of texts", spaced(o.what), name)
		case slices.Contains(texts, text):
			o.r.mistake(item, "%s%s has %q twice", spaced(o.what), name, text)
		default:
			texts = append(texts, text)
		}
	}
	return texts
}

// textsByName reads an object of texts.
func (o *object) textsByName(name string) map[string]string {
	var texts map[string]string
	for _, m := range o.entries(name) {
		text, ok := m.value.text()
		if !ok {
			o.r.mistake(m.value, "%s%s.%s must be a text; put it in quotes", spaced(o.what), name, m.name)
		}
		if texts == nil {
			texts = map[string]string{}
		}
		texts[m.name] = text
	}
	return texts
}

// entries reads an object whose field names are the file's own, in their order.
func (o *object) entries(name string) []member {
	v, there := o.field(name)
	if !there {
		return nil
	}
	members, ok := o.r.members(v, maxDepth)
	if !ok {
		o.wants(name, "an object")
	}
	for i := range members {
		members[i].value.line = members[i].line
	}
	return members
}

// json reads any value; nil when it is not there.
func (o *object) json(name string) json.RawMessage {
	v, there := o.field(name)
	if !there {
		return nil
	}
	return o.r.json(v)
}

// end notes the fields that nobody has asked for.
func (o *object) end() {
	for _, f := range o.fields {
		if slices.Contains(o.asked, f.name) {
			continue
		}
		at := f.value
		at.line = f.line
		o.r.mistake(at, "%sthere is no field %q%s", spaced(o.what), f.name, meant(f.name, o.asked))
	}
}

// meant asks whether one of the known names was meant, "" where none is close.
func meant(name string, known []string) string {
	best, least := "", max(1, len(name)/3)+1
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance counts the letters to add, drop, change or swap with their neighbour that
// make b of a.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			change := 1
			if x[i-1] == y[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(x)][len(y)]
}
