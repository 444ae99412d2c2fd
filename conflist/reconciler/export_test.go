// SPDX-License-Identifier: Apache-2.0

package reconciler

import "github.com/meshcni/meshcni/internal/filesystem"

// Observed returns the file with an observer of its calls.
func (f ClaimFile) Observed(o filesystem.Observer) ClaimFile {
	f.calls = o
	return f
}

// Recorded returns the claim with a file that the plugin was put into.
func (c Claim) Recorded(file string, mode Mode) Claim {
	return c.with(placement{File: file, Mode: mode})
}

// After returns the claim after a plan was carried out.
func (c Claim) After(p Plan) Claim {
	for _, s := range p.steps {
		switch s.op {
		case opRecord:
			c = c.with(s.place)
		case opForget:
			c = c.without(s.file)
		case opWrite, opRemove, opMakeDirectory, opRemoveDirectory, opNudge:
		}
	}
	return c
}

// EndsInNudge reports whether the runtime is notified after the last configuration was written.
func (p Plan) EndsInNudge() bool {
	after := false
	for _, s := range p.steps {
		after = s.op == opNudge || after && s.op != opWrite
	}
	return after
}

// In returns the directory that a step would work in.
func (r *Reconciler) In(file string) (filesystem.Directory, error) { return r.in(file) }
