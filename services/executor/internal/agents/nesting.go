package agents

import "github.com/goccy/go-yaml/token"

// tooDeep gives the first token that is nested deeper than maxDepth, nil when there is none.
// It is asked before the tokens become a tree, which takes a time that grows with the square
// of the depth.
func tooDeep(tokens token.Tokens) *token.Token {
	flow, marks := 0, 0 // brackets that are open, and tags and anchors in a row
	var columns []int   // of the blocks that are open
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
		case i == 0 || tokens[i-1].Type != token.AnchorType: // whose name it would be
			marks = 0
		}
		if flow <= 0 {
			columns = within(columns, block(tokens, i))
		}
		if flow+len(columns) > maxDepth || marks > maxDepth {
			return t
		}
	}
	return nil
}

// block gives the column of what a token begins or goes on with: the entry of a list, or of an
// object; 0 for other tokens.
func block(tokens token.Tokens, i int) int {
	switch t := tokens[i]; {
	case t.Type == token.SequenceEntryType || t.Type == token.MappingKeyType:
		return t.Position.Column
	case t.Type == token.MappingValueType && i > 0:
		return tokens[i-1].Position.Column
	}
	return 0
}

// within closes the blocks that end at a column, and opens that of the column.
func within(columns []int, column int) []int {
	if column == 0 {
		return columns
	}
	for len(columns) > 0 && columns[len(columns)-1] >= column {
		columns = columns[:len(columns)-1]
	}
	return append(columns, column)
}
