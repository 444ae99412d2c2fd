// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

type progress struct {
	out     io.Writer
	palette palette
	verbose bool
}

// stepWidth is the column of a step's tick.
const stepWidth = 78

// step announces a step, runs it, and prints its result and duration. If it succeeds, the detail is
// printed below it.
func (p progress) step(name string, do func() (detail string, err error)) error {
	fmt.Fprintf(p.out, "  %s %s ", name, p.palette.dim(strings.Repeat(".", max(3, stepWidth-utf8.RuneCountInString(name)))))
	start := time.Now()
	detail, err := do()
	took := duration(time.Since(start))
	if err != nil {
		fmt.Fprintf(p.out, "%s %s\n", p.palette.red("✗"), took)
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Fprintf(p.out, "%s %s\n", p.palette.green("✓"), took)
	p.detail(detail)
	return nil
}

func (p progress) detail(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(p.out, "      %s\n", p.palette.dim(strings.TrimRight(line, "\n")))
	}
}

// more prints a text under a title, if the user asked for details.
func (p progress) more(title, text string) {
	if !p.verbose || text == "" {
		return
	}
	fmt.Fprintf(p.out, "    %s\n", p.palette.bold(title))
	p.detail(text)
}

func (p progress) heading(text string) {
	fmt.Fprintf(p.out, "\n%s\n", p.palette.bold(text))
}

// duration returns "1.23 s" or "12 ms", no more exact than is useful.
func duration(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
}

// palette colours text for a terminal. The zero value leaves it as it is.
type palette struct{ on bool }

// colours returns the palette for a terminal, or an empty one (https://no-color.org).
func colours(terminal bool, getenv func(string) string) palette {
	return palette{on: terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}

// The codes are those of ECMA-48, section 8.3.117 (SGR).
func (p palette) bold(text string) string   { return p.paint("1", text) }
func (p palette) dim(text string) string    { return p.paint("2", text) }
func (p palette) red(text string) string    { return p.paint("1;31", text) }
func (p palette) green(text string) string  { return p.paint("32", text) }
func (p palette) yellow(text string) string { return p.paint("33", text) }

func (p palette) paint(code, text string) string {
	if !p.on {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
