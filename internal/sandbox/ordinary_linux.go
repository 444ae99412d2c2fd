// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"os/exec"
	"syscall"
)

// AsOrdinaryUser is a command that runs this program with args as an ordinary user of the id uid: no privileges, no groups but
// its own of the same id, outside of any sandbox that the caller is in (its own sandbox is then a nested one). The caller has to
// be root. With an id that /etc/subuid doesn't name, this shows what a user with a single id gets.
func AsOrdinaryUser(ctx context.Context, uid uint32, args ...string) *exec.Cmd {
	command := selfCommand(ctx, args)
	command.Stdin, command.Stdout, command.Stderr = nil, nil, nil
	command.Env = environment()
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return command
}
