// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"fmt"
	"time"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// RequestUninstall asks the daemon that runs on this node to uninstall when it is told to stop. One that is started later forgets it, and so
// does a reboot.
func (i *Installer) RequestUninstall(ctx context.Context) error {
	i = i.at(ctx)
	note := fmt.Sprintf("asked by %s at %s\n", i.options.Owner, i.options.Now().UTC().Format(time.RFC3339))
	if err := i.runDir().Make(runDirMode); err != nil {
		return fmt.Errorf("ask the daemon to uninstall: %w", explain(err))
	}
	if _, err := i.runDir().Write(i.options.requestName(), []byte(note), filesystem.Options{}); err != nil {
		return fmt.Errorf("ask the daemon to uninstall: %w", explain(err))
	}
	return nil
}

// UninstallRequested reports whether [Installer.RequestUninstall] was called, by any process, since this daemon was started.
func (i *Installer) UninstallRequested() bool {
	_, err := i.runDir().Read(i.options.requestName(), maxClaim)
	return err == nil
}

// forgetRequest removes what an earlier daemon was asked, or this one, when it is done.
func (i *Installer) forgetRequest() error {
	_, err := i.runDir().Remove(i.options.requestName())
	return err
}
