// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// hasSecond says whether there is a second directory for binaries. Istio before 1.23 wrote to one where it could, for nodes of which
// nobody knew where the runtime looks.
func (i *Installer) hasSecond() bool {
	info, err := os.Stat(i.settings.SecondBinDir)
	return i.settings.SecondBinDir != "" && err == nil && info.IsDir()
}

// installSecond copies the plugin into the second directory, too. One that can't be written is not used.
func (b *Binaries) installSecond(ctx context.Context, binaries []binary) upkeep.Outcome {
	plugin := slices.IndexFunc(binaries, func(f binary) bool { return f.name == pluginType })
	if plugin < 0 || !b.hasSecond() {
		return upkeep.Right
	}
	second := b.in(b.settings.SecondBinDir)
	b.removeStale(second.Path, staleAfter)
	outcome, err := b.install(ctx, second, binaries[plugin])
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		b.log.Debug("the second directory for binaries can't be written, and isn't used", "error", err)
	case err != nil:
		b.log.Warn("the plugin isn't in the second directory for binaries", "error", err)
	}
	return outcome
}

// markSecond writes the marker beside a plugin in the second directory: it looks for one beside itself.
func (i *Installer) markSecond(note []byte) error {
	if !i.hasSecond() {
		return nil
	}
	second := i.in(i.settings.SecondBinDir)
	if _, err := second.Stat(pluginType); isMissing(err) {
		return nil
	}
	_, err := second.Write(markerName, note, filesystem.Options{})
	return err
}

func (i *Installer) unmarkSecond() error {
	if !i.hasSecond() {
		return nil
	}
	_, err := i.in(i.settings.SecondBinDir).Remove(markerName)
	return err
}

// removeSecond removes the plugin from the second directory, and the marker, which is of use only beside it.
func (i *Installer) removeSecond() error {
	if !i.hasSecond() {
		return nil
	}
	second := i.in(i.settings.SecondBinDir)
	removed, err := second.Remove(pluginType)
	if removed {
		i.log.Info("removed a binary", "file", second.In(pluginType))
	}
	return errors.Join(err, i.unmarkSecond())
}
