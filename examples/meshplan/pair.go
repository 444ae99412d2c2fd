// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// podPairHelp is about --pod in commands that compare two sources.
const podPairHelp = `
With --pod, a source with several pods stands for the one of that name. Given
twice, the first is for the first source, and the second for the second.`

// readBoth reads two sources, each one pod, plan or namespace.
func (s *source) readBoth(command *cobra.Command, arguments []string) (a, b rules, err error) {
	switch {
	case arguments[0] == "-" && arguments[1] == "-":
		return a, b, usage(command, errors.New("the standard input can be read once only"))
	case len(s.pods) > 2:
		return a, b, usage(command, fmt.Errorf("--pod is given %d times, want once for each SOURCE at most", len(s.pods)))
	}
	first, second := s.selections()
	if a, err = s.readOne(command, arguments[0], first); err != nil {
		return a, b, err
	}
	if b, err = s.readOne(command, arguments[1], second); err != nil {
		return a, b, err
	}
	if len(s.pods) == 1 && !isNamed(a.name, s.pods[0]) && !isNamed(b.name, s.pods[0]) {
		err = fmt.Errorf("no pod of either source is named %q: leave --pod out, or correct it", s.pods[0])
	}
	return a, b, err
}

// selections are those of the two sources. A single name is for each source that has several pods.
func (s *source) selections() (first, second selection) {
	if len(s.pods) == 2 {
		return selection{names: s.pods[:1]}, selection{names: s.pods[1:]}
	}
	both := selection{names: s.pods, lenient: true}
	return both, both
}

// readOne returns what the argument, one of two, names: one pod, plan or namespace. Warnings name the argument.
func (s *source) readOne(command *cobra.Command, argument string, selected selection) (rules, error) {
	all, err := s.readAs(command, argument, argument+": ", selected)
	if err != nil {
		return rules{}, err
	}
	if len(all) > 1 {
		return rules{}, fmt.Errorf("%s: it has several pods: choose one with --pod: %s", argument, names(all))
	}
	if all[0].alone != nil {
		return rules{}, fmt.Errorf("%s: %w", argument, all[0].alone)
	}
	return all[0], nil
}
