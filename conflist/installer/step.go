// SPDX-License-Identifier: Apache-2.0

package installer

import "fmt"

// Outcome is what became of a step.
type Outcome string

// The outcomes.
const (
	Done     Outcome = "done"
	Kept     Outcome = "kept"      // on purpose
	Failed   Outcome = "failed"    // and may be tried again
	NotTried Outcome = "not tried" // because of another step's failure
)

// Step is one part of an uninstall.
type Step struct {
	// Name is "configuration", "marker", "kubeconfig", "binaries" or "claim".
	Name    string
	Outcome Outcome
	// Detail is what there is to say about it; the error if it failed. May be empty.
	Detail string
}

// String is one line, in columns.
func (s Step) String() string { return fmt.Sprintf("%-13s  %-9s  %s", s.Name, s.Outcome, s.Detail) }

// UninstallOptions say how to uninstall. The zero value keeps what running pods need.
type UninstallOptions struct {
	// Purge takes away the binaries even if running pods need them to be removed, and the note that the plugin was uninstalled.
	Purge bool
	// Tell, unless it is nil, is told of each step when it is over.
	Tell func(Step)
}
