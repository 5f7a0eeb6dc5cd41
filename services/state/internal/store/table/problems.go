package table

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// EncodeProblems returns the column of an executor's problems: empty for none.
func EncodeProblems(problems []session.Problem) (string, error) {
	if len(problems) == 0 {
		return "", nil
	}
	text, err := json.Marshal(problems)
	return string(text), err
}

// DecodeProblems adds the problems of an executor from its column.
func DecodeProblems(column string, to map[string][]session.Problem, executorID string) error {
	var problems []session.Problem
	if err := json.Unmarshal([]byte(column), &problems); err != nil {
		return fmt.Errorf("the problems of an executor: %w", err)
	}
	to[executorID] = problems
	return nil
}
