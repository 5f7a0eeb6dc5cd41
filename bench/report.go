package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/holdfast-run/holdfast/bench/internal/agent"
	"github.com/holdfast-run/holdfast/bench/internal/figures"
	"github.com/holdfast-run/holdfast/bench/internal/postgres"
)

// report prints the table and the guarantees of each row.
func (d *driver) report(w io.Writer) error {
	head := []string{"milliseconds of processor time a step"}
	for _, n := range d.runs {
		head = append(head, fmt.Sprintf("%d at a time", n))
	}
	most := d.runs[len(d.runs)-1]
	head = append(head, "of which Postgres", fmt.Sprintf("steps/s at %d", most))
	var rows [][]string
	for _, c := range d.options.peers {
		row := []string{c.name}
		for _, n := range d.runs {
			row = append(row, d.cell(key{c.name, n}, 2, func(s sample) float64 { return s.step }))
		}
		last := key{c.name, most}
		row = append(row,
			d.cell(last, 2, func(s sample) float64 { return s.database }),
			d.cell(last, 0, func(s sample) float64 { return s.rate }))
		rows = append(rows, row)
	}
	fmt.Fprintf(w, `
The same agent on each runtime: %d steps a run, each but the last with a tool.
Median (smallest..largest) of %d rounds with windows of %v, on %d processors.
Postgres with %s.
All processes of a runtime and of Postgres count. A client counts where the runtime is a library in its process.

`, agent.Steps, d.rounds, d.window, runtime.NumCPU(), strings.Join(postgres.Settings, ", "))
	if err := figures.Table(w, head, rows); err != nil {
		return err
	}
	fmt.Fprint(w, "\nWhat each row promises:\n\n")
	for _, c := range d.options.peers {
		fmt.Fprintf(w, "- %s: %s\n", c.name, c.promise)
		if err := d.failures[c.name]; err != nil {
			fmt.Fprintf(w, "  %v\n", err)
		}
	}
	return nil
}

// cell returns the spread of a figure, or "–" without measurements.
func (d *driver) cell(at key, decimals int, figure func(sample) float64) string {
	var all []float64
	for _, s := range d.samples[at] {
		all = append(all, figure(s))
	}
	spread, ok := figures.Of(all)
	if !ok {
		return "–"
	}
	return spread.Format(decimals)
}
