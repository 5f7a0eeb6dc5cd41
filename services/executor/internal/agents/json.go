package agents

import (
	"bytes"
	"encoding/json"
	"math"

	"github.com/goccy/go-yaml/ast"
)

// maxJSON bounds the JSON of one value, in bytes. Aliases can make a short file long.
const maxJSON = 1 << 20

// json returns the value as JSON, with fields in order. It returns nil for a value without JSON, for example .inf.
func (v value) json() json.RawMessage {
	var out bytes.Buffer
	if _, problem := v.writeJSON(&out, maxDepth); problem != "" {
		return nil
	}
	return out.Bytes()
}

// writeJSON writes the value as JSON, with fields in order. For a value without JSON it returns the offending part, and the
// problem with it.
func (v value) writeJSON(out *bytes.Buffer, depth int) (bad value, problem string) {
	if depth == 0 || out.Len() > maxJSON {
		return v, "the value is nested too deeply or is too large"
	}
	if members, ok := v.members(); ok {
		out.WriteByte('{')
		for i, m := range members {
			if i > 0 {
				out.WriteByte(',')
			}
			writeScalar(out, m.name)
			out.WriteByte(':')
			if bad, problem := m.writeJSON(out, depth-1); problem != "" {
				return bad, problem
			}
		}
		out.WriteByte('}')
		return v, ""
	}
	if items, ok := v.items(); ok {
		out.WriteByte('[')
		for i, item := range items {
			if i > 0 {
				out.WriteByte(',')
			}
			if bad, problem := item.writeJSON(out, depth-1); problem != "" {
				return bad, problem
			}
		}
		out.WriteByte(']')
		return v, ""
	}
	if text, ok := v.text(); ok {
		writeScalar(out, text)
		return v, ""
	}
	switch n := v.node.(type) {
	case nil:
		writeScalar(out, nil)
	case *ast.BoolNode:
		writeScalar(out, n.Value)
	case *ast.IntegerNode:
		writeScalar(out, n.Value)
	case *ast.FloatNode:
		if math.IsInf(n.Value, 0) {
			return v, "JSON has no value like " + v.node.GetToken().Value
		}
		writeScalar(out, n.Value)
	default:
		return v, "JSON has no value like " + v.node.GetToken().Value
	}
	return v, ""
}

// writeScalar writes a value that always has JSON.
func writeScalar(out *bytes.Buffer, scalar any) {
	text, _ := json.Marshal(scalar)
	out.Write(text)
}
