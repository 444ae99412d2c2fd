// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/meshcni/meshcni/internal/backoff"
	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// Binaries keeps the plugin's binaries on the node the same as those that came with this program.
type Binaries struct {
	*Installer
	kept map[string]string // by the path of each that was in place when it was last looked at, which one of here it was
}

// Name is "binaries".
func (b *Binaries) Name() string { return "binaries" }

// Pace is slower than that of small files: a binary has some megabytes.
func (b *Binaries) Pace() backoff.Bucket { return backoff.Bucket{Burst: 3, Every: 5 * time.Second} }

// Directories are those whose changes concern this part.
func (b *Binaries) Directories() []string {
	if b.hasSecond() {
		return []string{b.settings.BinDir, b.settings.SecondBinDir}
	}
	return []string{b.settings.BinDir}
}

// Concerns reports whether a change of the file at path may need this part.
func (b *Binaries) Concerns(path string) bool {
	if directory := filepath.Dir(path); directory != b.settings.BinDir && directory != b.settings.SecondBinDir {
		return false
	}
	_, err := os.Lstat(filepath.Join(b.settings.SourceDir, filepath.Base(path)))
	return err == nil || path == b.claims.path()
}

// Ensure copies each binary that isn't on the node as it is here. It is a restore if it was there before.
func (b *Binaries) Ensure(ctx context.Context) (upkeep.Outcome, error) {
	b.refresh()
	if err := b.claims.keep(); err != nil {
		return upkeep.Right, err
	}
	binaries, err := b.sources(b.dataplane(ctx).IPTables)
	if err != nil {
		return upkeep.Right, err
	}
	b.removeStale(b.settings.BinDir, staleAfter)
	if err := b.claimBinaries(binaries); err != nil {
		return upkeep.Right, err
	}
	outcome := upkeep.Right
	for _, binary := range binaries {
		did, err := b.install(ctx, b.binDir(), binary)
		outcome = max(outcome, did)
		if err != nil {
			return outcome, err
		}
	}
	return max(outcome, b.installSecond(ctx, binaries)), nil
}

// install copies one binary into a directory of the node, unless it isn't to be replaced there.
func (b *Binaries) install(ctx context.Context, to filesystem.Directory, binary binary) (upkeep.Outcome, error) {
	path := to.In(binary.name)
	if !b.settings.UpdateBinaries {
		if _, err := to.Stat(binary.name); !isMissing(err) {
			return upkeep.Right, err
		}
	}
	copied, err := to.CopyAs(b.in(b.settings.SourceDir), binary.source, binary.name, filesystem.Options{Mode: binary.mode})
	if copied {
		level := slog.LevelInfo
		if b.kept[path] == binary.source {
			level = b.noisy()
		}
		b.log.Log(ctx, level, "installed a binary", "file", path, "source", binary.source)
	}
	if err != nil {
		return upkeep.Right, fmt.Errorf("install %s: %w", path, explain(err))
	}
	before := b.kept[path]
	b.kept[path] = binary.source
	switch {
	case !copied:
		return upkeep.Right, nil
	case before == binary.source:
		return upkeep.Restored, nil
	}
	return upkeep.Wrote, nil
}

type binary struct {
	name   string // on the node
	source string // its name here
	mode   fs.FileMode
}

// withIPTables is the plugin's build with iptables, which is installed in place of the other one.
const withIPTables = pluginType + "-iptables"

// sources lists the regular files to install; the plugin must be among them. Of its two builds one is.
func (b *Binaries) sources(iptables bool) ([]binary, error) {
	entries, err := os.ReadDir(b.settings.SourceDir)
	if err != nil {
		return nil, fmt.Errorf("list the plugin's binaries: %w; set cni-bin-source-dir to the directory that holds them", err)
	}
	var binaries []binary
	for _, entry := range entries {
		name, wanted := targetOf(entry.Name(), iptables)
		if !wanted || !entry.Type().IsRegular() || slices.Contains(b.settings.SkipBinaries, name) {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			return nil, fmt.Errorf("list the plugin's binaries: %w", err)
		}
		// Nobody but its owner may write to what root will run.
		binaries = append(binaries, binary{name, entry.Name(), info.Mode().Perm() &^ 0o022})
	}
	if slices.Contains(b.settings.SkipBinaries, pluginType) {
		return binaries, nil // somebody else brings it
	}
	if !slices.ContainsFunc(binaries, func(f binary) bool { return f.name == pluginType && f.mode&0o100 != 0 }) {
		return nil, fmt.Errorf("no executable %s in %s; set cni-bin-source-dir to the directory that holds it",
			buildOf(iptables), b.settings.SourceDir)
	}
	return binaries, nil
}

// buildOf is the name of the plugin's build here.
func buildOf(iptables bool) string {
	if iptables {
		return withIPTables
	}
	return pluginType
}

// targetOf is the name that a file gets on the node; the other build of the plugin is not wanted there.
func targetOf(source string, iptables bool) (name string, wanted bool) {
	switch source {
	case buildOf(iptables):
		return pluginType, true
	case buildOf(!iptables):
		return "", false
	default:
		return source, true
	}
}

// claimBinaries records what uninstalling has to remove: the plugin, and whatever nobody had put there before.
func (b *Binaries) claimBinaries(binaries []binary) error {
	var fresh []string
	for _, binary := range binaries {
		_, err := b.binDir().Stat(binary.name)
		if binary.name == pluginType || isMissing(err) {
			fresh = append(fresh, binary.name)
		}
	}
	return b.claims.update(func(c *claim) {
		for _, name := range fresh {
			if !slices.Contains(c.Binaries, name) {
				c.Binaries = append(c.Binaries, name)
			}
		}
	})
}

// explain adds what helps to the errors of node directories that can't be written.
func explain(err error) error {
	switch {
	case errors.Is(err, filesystem.ErrNoChown):
		return err // says what to do, and it isn't to run as root
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; mount the node's directory there, or name another one in the settings", err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; this platform keeps its CNI files elsewhere: set the path its documentation names", err)
	case errors.Is(err, syscall.EPERM): // EACCES is what permission bits give
		return fmt.Errorf("%w; the daemon has to run as root, with a security context that may write there, and the file must not be immutable"+
			" (lsattr, chattr -i)", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; the daemon has to run as root, with a security context that may write there", err)
	}
	return err
}
