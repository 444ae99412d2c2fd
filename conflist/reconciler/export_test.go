// SPDX-License-Identifier: Apache-2.0

package reconciler

import "github.com/meshcni/meshcni/internal/filesystem"

// Observed is the file with an observer of its calls.
func (f ClaimFile) Observed(o filesystem.Observer) ClaimFile {
	f.calls = o
	return f
}

// Recorded is the claim with a file that the plugin was put into.
func (c Claim) Recorded(file string, mode Mode) Claim {
	return c.with(placement{File: file, Mode: mode})
}

// After is the claim when a plan has been carried out.
func (c Claim) After(p Plan) Claim {
	for _, s := range p.Steps {
		switch s.Op {
		case OpRecord:
			c = c.with(s.place)
		case OpForget:
			c = c.without(s.File)
		case OpWrite, OpRemove, OpMakeDirectory, OpRemoveDirectory, OpNudge:
		}
	}
	return c
}

// In is the directory that a step would work in.
func (r *Reconciler) In(file string) (filesystem.Directory, error) { return r.in(file) }
