// SPDX-License-Identifier: Apache-2.0

package reconciler

import "github.com/meshcni/meshcni/internal/filesystem"

func (f ClaimFile) Observed(o filesystem.Observer) ClaimFile {
	f.calls = o
	return f
}

func (c Claim) Recorded(file string, mode Mode) Claim {
	return c.with(placement{File: file, Mode: mode})
}

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

func (r *Reconciler) In(file string) (filesystem.Directory, error) { return r.in(file) }
