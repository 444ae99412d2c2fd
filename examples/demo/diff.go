// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// diff shows how two texts that differ in one place differ: the lines that went with "-", those that came with "+", and a line
// around them. It is empty for equal texts.
func diff(before, after string) string {
	if before == after {
		return ""
	}
	a, b := strings.SplitAfter(before, "\n"), strings.SplitAfter(after, "\n")
	head := 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var text strings.Builder
	write := func(sign string, lines []string) {
		for _, line := range lines {
			if line != "" {
				text.WriteString(sign + strings.TrimRight(line, "\r\n") + "\n")
			}
		}
	}
	write("  ", a[max(0, head-1):head])
	write("- ", a[head:len(a)-tail])
	write("+ ", b[head:len(b)-tail])
	write("  ", a[len(a)-tail:min(len(a), len(a)-tail+1)])
	return text.String()
}
