// Package figures formats measurements.
package figures

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Spread is the median, the smallest and the largest of some figures.
type Spread struct{ Median, Min, Max float64 }

// Of returns the spread of the figures. ok is false without any.
func Of(all []float64) (s Spread, ok bool) {
	if len(all) == 0 {
		return Spread{}, false
	}
	sorted := slices.Sorted(slices.Values(all))
	middle := len(sorted) / 2
	s = Spread{Median: sorted[middle], Min: sorted[0], Max: sorted[len(sorted)-1]}
	if len(sorted)%2 == 0 {
		s.Median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return s, true
}

// Format writes the median, followed by smallest..largest, with this number of decimals.
func (s Spread) Format(decimals int) string {
	return fmt.Sprintf("%.*f (%.*f..%.*f)", decimals, s.Median, decimals, s.Min, decimals, s.Max)
}

// Table writes a Markdown table with aligned columns. Rows may be shorter than the head.
func Table(w io.Writer, head []string, rows [][]string) error {
	widths := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	line := func(row []string) {
		for i, width := range widths {
			var cell string
			if i < len(row) {
				cell = row[i]
			}
			fmt.Fprintf(&text, "| %s%s ", cell, strings.Repeat(" ", width-utf8.RuneCountInString(cell)))
		}
		text.WriteString("|\n")
	}
	line(head)
	rule := make([]string, len(head))
	for i, width := range widths {
		rule[i] = strings.Repeat("-", width)
	}
	line(rule)
	for _, row := range rows {
		line(row)
	}
	_, err := io.WriteString(w, text.String())
	return err
}
