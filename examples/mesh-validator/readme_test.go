// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestREADME parses the manual's command lines as the users that it names.
func TestREADME(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	containers := 0
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		var pod struct {
			InitContainers []struct {
				Command         []string
				SecurityContext struct{ RunAsUser, RunAsGroup int }
			}
		}
		if err := yaml.Unmarshal([]byte(block), &pod); err != nil {
			t.Fatal(err)
		}
		for _, c := range pod.InitContainers {
			containers++
			env := environment{args: c.Command[1:], uid: c.SecurityContext.RunAsUser, gid: c.SecurityContext.RunAsGroup}
			if _, err := parse(env); err != nil || c.Command[0] != "mesh-validator" {
				t.Errorf("%q: %v", c.Command, err)
			}
		}
	}
	if containers != 3 {
		t.Errorf("found %d containers", containers)
	}
}
