package agents

import "github.com/goccy/go-yaml/token"

// tooDeep returns the first token beyond maxDepth, nil if there is none. It works on tokens because the
// parser takes time in proportion to the square of the depth.
func tooDeep(tokens token.Tokens) *token.Token {
	flow, marks := 0, 0 // open brackets; consecutive tags and anchors
	var columns []int   // columns of open blocks
	for i, t := range tokens {
		switch {
		case t.Type == token.MappingStartType || t.Type == token.SequenceStartType:
			flow++
		case t.Type == token.MappingEndType || t.Type == token.SequenceEndType:
			flow--
		}
		switch {
		case t.Type == token.TagType || t.Type == token.AnchorType:
			marks++
		case i == 0 || tokens[i-1].Type != token.AnchorType: // not the name of an anchor
			marks = 0
		}
		if flow <= 0 {
			columns = openBlocks(columns, blockColumn(tokens, i))
		}
		if flow+len(columns) > maxDepth || marks > maxDepth {
			return t
		}
	}
	return nil
}

// blockColumn returns the column of the list item or object field that a token belongs to, 0 for other
// tokens.
func blockColumn(tokens token.Tokens, i int) int {
	switch t := tokens[i]; {
	case t.Type == token.SequenceEntryType || t.Type == token.MappingKeyType:
		return t.Position.Column
	case t.Type == token.MappingValueType && i > 0:
		return tokens[i-1].Position.Column
	}
	return 0
}

// openBlocks closes the blocks at or beyond a column, and opens a block there.
func openBlocks(columns []int, column int) []int {
	if column == 0 {
		return columns
	}
	for len(columns) > 0 && columns[len(columns)-1] >= column {
		columns = columns[:len(columns)-1]
	}
	return append(columns, column)
}
