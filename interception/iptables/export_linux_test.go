// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"errors"
	"os"
	"os/exec"

	"github.com/meshcni/meshcni/interception"
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
