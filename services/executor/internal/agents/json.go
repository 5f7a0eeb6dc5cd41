package agents

import (
	"bytes"
	"encoding/json"

	"github.com/goccy/go-yaml/ast"
)

// maxJSON bounds the JSON of one value, in bytes. Aliases can make a short file long.
const maxJSON = 1 << 20

// json returns the value as JSON, with fields in order. It returns nil, with a mistake, for a value that
// is too deep or too large, or has no JSON, for example .inf.
func (v value) json() json.RawMessage {
	var out bytes.Buffer
	if !v.writeJSON(&out, maxDepth) {
		return nil
	}
	return out.Bytes()
}

func (v value) writeJSON(out *bytes.Buffer, depth int) bool {
	if depth == 0 || out.Len() > maxJSON {
		v.mistake("the value is nested too deeply or is too large")
		return false
	}
	if members, ok := v.members(); ok {
		return writeAll(out, "{}", len(members), func(i int) bool {
			writeScalar(out, members[i].name)
			out.WriteByte(':')
			return members[i].writeJSON(out, depth-1)
		})
	}
	if items, ok := v.items(); ok {
		return writeAll(out, "[]", len(items), func(i int) bool { return items[i].writeJSON(out, depth-1) })
	}
	if text, ok := v.text(); ok {
		return writeScalar(out, text)
	}
	switch n := v.node.(type) {
	case nil:
		return writeScalar(out, nil)
	case *ast.BoolNode:
		return writeScalar(out, n.Value)
	case *ast.IntegerNode:
		return writeScalar(out, n.Value)
	case *ast.FloatNode:
		return writeScalar(out, n.Value)
	}
	v.mistake("JSON has no value like %s", v.node.GetToken().Value)
	return false
}

func writeAll(out *bytes.Buffer, brackets string, count int, write func(i int) bool) bool {
	out.WriteByte(brackets[0])
	for i := range count {
		if i > 0 {
			out.WriteByte(',')
		}
		if !write(i) {
			return false
		}
	}
	out.WriteByte(brackets[1])
	return true
}

func writeScalar(out *bytes.Buffer, scalar any) bool {
	text, err := json.Marshal(scalar)
	out.Write(text)
	return err == nil
}
