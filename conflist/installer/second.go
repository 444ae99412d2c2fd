// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// hasSecond reports whether there is a second directory for binaries. If one DaemonSet serves nodes
// whose container runtimes look in different directories, the plugin is in both, and each runtime
// finds it.
func (i *Installer) hasSecond() bool {
	info, err := os.Stat(i.options.SecondBinDir)
	return i.options.SecondBinDir != "" && err == nil && info.IsDir()
}

// installSecond copies the plugin into the second directory too, unless that cannot be written.
func (b *binaries) installSecond(found []binary) Result {
	plugin := slices.IndexFunc(found, func(f binary) bool { return f.name == b.options.plugin() })
	if plugin < 0 || !b.hasSecond() {
		return Right
	}
	second := b.in(b.options.SecondBinDir)
	b.removeStale(second.Path, staleAfter)
	outcome, err := b.install(second, found[plugin])
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		b.options.emit(Detail, "the second directory for binaries can't be written, and isn't used", "error", err)
	case err != nil:
		b.options.emit(Warning, "the plugin isn't in the second directory for binaries", "error", err)
	}
	return outcome
}

// markSecond writes the marker into the second directory: a plugin looks for it beside itself.
func (i *Installer) markSecond(note []byte) error {
	if !i.hasSecond() {
		return nil
	}
	second := i.in(i.options.SecondBinDir)
	if _, err := second.Stat(i.options.plugin()); isMissing(err) {
		return nil
	}
	_, err := second.Write(i.options.markerName(), note, filesystem.Options{})
	return err
}

func (i *Installer) unmarkSecond() error {
	if !i.hasSecond() {
		return nil
	}
	_, err := i.in(i.options.SecondBinDir).Remove(i.options.markerName())
	return err
}

// removeSecond removes the plugin and then the marker from the second directory.
func (i *Installer) removeSecond() error {
	if !i.hasSecond() {
		return nil
	}
	return errors.Join(i.remove(i.in(i.options.SecondBinDir).In(i.options.plugin()), "a binary"), i.unmarkSecond())
}
