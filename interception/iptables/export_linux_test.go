// SPDX-License-Identifier: Apache-2.0

package iptables

// DefaultRunner is the runner of the zero Options.
func DefaultRunner() Runner { return runner{} }
