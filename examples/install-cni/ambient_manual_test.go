// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestManualOfAmbientMode looks for each step, finding and reason in docs/operations.md, and for
// the manual's errors in the programs.
func TestManualOfAmbientMode(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, manual, found := strings.Cut(string(text), "\n## Ambient mode\n")
	manual, _, _ = strings.Cut(manual, "\n## ")
	if !found {
		t.Fatal("the manual has no section about ambient mode")
	}
	for kind, in := range map[string]struct {
		pattern     string
		directories []string
		row         bool // of a table, and not only mentioned
		least       int
	}{
		"step":    {`\sStep[A-Z]\w+ +Step = "([^"]+)"|\sStep[A-Z]\w+ += "([^"]+)"`, []string{"../../ambient"}, true, 13},
		"finding": {`\s[A-Z]\w+ +Code = "([^"]+)"`, []string{"internal/preflight"}, true, 12},
		"reason":  {`\sReason[A-Z]\w+ +interception\.Reason = "([^"]+)"|const ReasonWithdrawn interception\.Reason = "([^"]+)"`, []string{"../../ambient"}, false, 8},
	} {
		texts := regexp.MustCompile(in.pattern).FindAllStringSubmatch(sources(t, in.directories...), -1)
		if len(texts) < in.least {
			t.Errorf("found %d of kind %s only: %q", len(texts), kind, texts)
		}
		for _, match := range texts {
			name := match[1]
			if name == "" {
				name = match[len(match)-1]
			}
			row := regexp.MustCompile("(?m)^\\|[^|]*`" + regexp.QuoteMeta(name) + "`")
			if in.row && !row.MatchString(manual) || !strings.Contains(manual, "`"+name+"`") {
				t.Errorf("the manual lacks the %s %s", kind, name)
			}
		}
	}
	programs := sources(t, "../../ambient", "../../interception/podnetns", "../node-ambient", "internal/ambientpart")
	_, errors, _ := strings.Cut(manual, "\n| error |")
	messages := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(errors, -1)
	if len(messages) < 7 {
		t.Errorf("found %d errors only", len(messages))
	}
	for _, message := range messages {
		if !strings.Contains(programs, message[1]) {
			t.Errorf("no program says %q", message[1])
		}
	}
}
