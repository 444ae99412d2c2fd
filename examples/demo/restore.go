// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// restoredWithin limits how long the daemon may take to restore a file.
const restoredWithin = 10 * time.Second

// spoil changes the file at path and measures how long it takes until its content is want again.
func spoil(ctx context.Context, path string, want []byte, change func() error) (time.Duration, error) {
	if err := change(); err != nil {
		return 0, fmt.Errorf("change %s: %w", path, err)
	}
	changed := time.Now()
	ctx, cancel := context.WithTimeout(ctx, restoredWithin)
	defer cancel()
	for again := time.Tick(time.Millisecond); ; {
		if text, err := os.ReadFile(path); err == nil && bytes.Equal(text, want) {
			return time.Since(changed), nil
		}
		select {
		case <-again:
		case <-ctx.Done():
			return 0, fmt.Errorf("%s is not restored after %s", path, restoredWithin)
		}
	}
}

// replace renames a new file to path, as installers do.
func replace(path string, content []byte) error {
	temporary := path + ".tmp"
	if err := os.WriteFile(temporary, content, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// diff shows the one place in which two texts differ: removed lines with "-", added lines with "+",
// and one line of context. It is empty for equal texts.
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
