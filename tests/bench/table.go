package main

import (
	"fmt"
	"slices"
	"strings"
)

// table has all that was measured, in the order in which it came.
type table struct {
	rows   []string
	values map[string]map[string][]float64
}

func newTable() *table { return &table{values: map[string]map[string][]float64{}} }

func (t *table) add(row, side string, value float64) {
	if t.values[row] == nil {
		t.rows = append(t.rows, row)
		t.values[row] = map[string][]float64{}
	}
	t.values[row][side] = append(t.values[row][side], value)
}

func median(values []float64) float64 {
	values = slices.Clone(values)
	slices.Sort(values)
	return values[len(values)/2]
}

// markdown has medians, with how many there were and how far apart they are.
func (t *table) markdown(sides []string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "| what (median; least to most; n) | %s | ratio |\n|---|%s---|\n", strings.Join(sides, " | "), strings.Repeat("---|", len(sides)))
	for _, row := range t.rows {
		fmt.Fprintf(&out, "| %s |", row)
		var medians []float64
		for _, side := range sides {
			values := t.values[row][side]
			if len(values) == 0 {
				out.WriteString(" |")
				continue
			}
			medians = append(medians, median(values))
			fmt.Fprintf(&out, " %.2f; %.2f to %.2f; %d |", median(values), slices.Min(values), slices.Max(values), len(values))
		}
		if len(medians) == 2 && medians[1] != 0 {
			fmt.Fprintf(&out, " %.2f |\n", medians[0]/medians[1])
		} else {
			out.WriteString(" |\n")
		}
	}
	return out.String()
}
