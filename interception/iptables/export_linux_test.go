// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"errors"
	"os"
	"os/exec"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/kernel"
)

// DefaultRunner returns the runner of the zero Options.
func DefaultRunner() Runner { return runner{} }

// WithLocalNames runs a program without name services, and returns its output.
func WithLocalNames(in *os.File, cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout = &out
	err := startWithLocalNames(in, cmd)
	if err == nil {
		err = cmd.Wait()
	}
	return out.String(), errors.Join(err, cmd.Err)
}

// Unmapped returns the error about an id that is in neither of the texts of uid_map and gid_map.
func Unmapped(p *interception.Plan, users, groups string) error {
	return unmapped(p, parseIDMap(users), parseIDMap(groups))
}

// Through returns a dataplane that uses the kernel.Namespace that open returns.
func (d *Dataplane) Through(open func(in *os.File) kernel.Namespace) *Dataplane {
	through, _ := newDataplane(&Dataplane{options: d.options, backend: d.backend})
	through.backend.Kernel = open
	return through
}

// Indexes returns how many indexes of live sets a dataplane keeps.
func Indexes(d *Dataplane) int { return len(d.indices.all) }
