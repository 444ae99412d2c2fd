// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
)

// TestREADMEHasEverySettingAndCode checks that the operator's tables are complete.
func TestREADMEHasEverySettingAndCode(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for field := range reflect.TypeFor[pluginconf.Config]().Fields() {
		if key := field.Tag.Get("json"); key != "-" && !strings.Contains(string(readme), "\n| `"+key+"` | ") {
			t.Errorf("setting %s is not in README.md", key)
		}
	}
	for file, least := range map[string]int{"../../interception/plugin/error.go": 10, "../internal/ambientplugin/failure.go": 9} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		codes := regexp.MustCompile(`\n\tcode\w+ +uint += (\d+)`).FindAllStringSubmatch(string(source), -1)
		if len(codes) < least {
			t.Fatalf("found %d codes in %s only", len(codes), file)
		}
		for _, code := range codes {
			if !strings.Contains(string(readme), fmt.Sprintf("\n| %s | ", code[1])) {
				t.Errorf("code %s is not in README.md", code[1])
			}
		}
	}
}
