// SPDX-License-Identifier: Apache-2.0

// Package exhaustion has a CNI plugin answer with an error of the specification (code 151) when the
// kernel gives its process no more threads. The Go runtime itself would end the process with stacks
// on standard error, and the container runtime would show nothing else. A plugin's main opts in
// with
//
//	plugin.Options{Answered: exhaustion.Answered}
//
// # Non-goals
//
// The package is only for a CNI plugin's main, on Linux. Importing it is enough to replace what the
// Go runtime writes when it can start no thread, which is why package plugin does not import it.
package exhaustion
