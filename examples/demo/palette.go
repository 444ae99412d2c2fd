// SPDX-License-Identifier: Apache-2.0

package main

// palette colours text for a terminal. The zero value leaves it as it is.
type palette struct{ on bool }

// colours says whether there is somebody to see them (https://no-color.org).
func colours(terminal bool, getenv func(string) string) palette {
	return palette{on: terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}

// The colours are those of ECMA-48, section 8.3.117 (SGR).
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
