// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"time"
)

// anyAge is for removeStale while no other process can be writing.
const anyAge = -time.Hour

// Attend registers a daemon on this node, until release is called, which lets an older daemon that
// still runs continue. It creates the plugin's run directory, which a reboot may remove. It waits
// until an uninstall that is under way, or the context, ends.
func (i *Installer) Attend(ctx context.Context) (release func(), err error) {
	i = i.at(ctx)
	h, err := i.holdAsDaemon(ctx, func() { // now only the plugin may be writing, in its run directory
		i.removeStale(i.options.NetDir, anyAge)
		i.removeStale(i.options.BinDir, anyAge)
	})
	if err != nil {
		return nil, err
	}
	i.claims.attend(h)
	i.catchUp(i.netDir(), i.binDir(), i.runDir())
	if err := i.forgetRequest(); err != nil && !isMissing(err) {
		i.options.emit(Warning, "can't withdraw a request to uninstall that an earlier daemon was given", "error", err)
	}
	if err := i.runDir().Make(runDirMode); err != nil {
		i.options.emit(Warning, "can't make the plugin's run directory yet", "error", err)
	}
	return func() {
		if err := i.claims.leave(i.observer); err != nil {
			i.options.emit(Warning, "can't tell other daemons that this one is ending", "error", err)
		}
		h.release()
	}, nil
}
