// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// binaries keeps the plugin's binaries on the node equal to those that came with this program.
type binaries struct {
	*Installer
	kept map[string]string // the source of each path that was in place at the last look
}

func (b *binaries) Name() string { return "binaries" }

// Pace allows fewer restores than for the entry, because each one writes several megabytes.
func (b *binaries) Pace() upkeep.Bucket { return upkeep.Bucket{Burst: 3, Every: 5 * time.Second} }

func (b *binaries) Directories() []string {
	if b.hasSecond() {
		return []string{b.options.BinDir, b.options.SecondBinDir}
	}
	return []string{b.options.BinDir}
}

func (b *binaries) Concerns(path string) bool {
	if directory := filepath.Dir(path); directory != b.options.BinDir && directory != b.options.SecondBinDir {
		return false
	}
	name := filepath.Base(path)
	if path == b.claims.path() || name == b.options.plugin() {
		return true
	}
	if _, wanted := b.targetOf(name, ""); !wanted {
		return false // it is not installed under its own name
	}
	_, err := os.Lstat(filepath.Join(b.options.SourceDir, name))
	return err == nil
}

func (i *Installer) binaries() *binaries {
	return &binaries{Installer: i.part(), kept: map[string]string{}}
}

// Ensure copies each binary that is missing or different on the node. It is a restore if the binary
// was in place before.
func (b *binaries) Ensure(ctx context.Context) (Result, error) {
	b.refresh(ctx)
	if err := b.claims.keep(b.observer); err != nil {
		return Right, err
	}
	found, err := b.sources(b.options.build(ctx))
	if err != nil {
		return Right, err
	}
	b.removeStale(b.options.BinDir, staleAfter)
	if err := b.claimBinaries(found); err != nil {
		return Right, err
	}
	outcome := Right
	for _, binary := range found {
		did, err := b.install(b.binDir(), binary)
		outcome = max(outcome, did)
		if err != nil {
			return outcome, err
		}
	}
	return max(outcome, b.installSecond(found)), nil
}

// install copies one binary into a directory of the node, unless it must not be replaced.
func (b *binaries) install(to filesystem.Directory, binary binary) (Result, error) {
	path := to.In(binary.name)
	if b.options.KeepBinaries {
		if _, err := to.Stat(binary.name); !isMissing(err) {
			return Right, err
		}
	}
	copied, err := to.CopyAs(b.in(b.options.SourceDir), binary.source, binary.name, filesystem.Options{Mode: binary.mode})
	weight, outcome := News, Right
	switch {
	case copied && b.kept[path] == binary.source:
		weight, outcome = b.noisy(), Restored
	case copied:
		outcome = Wrote
	}
	if copied {
		b.options.emit(weight, "installed a binary", "file", path, "source", binary.source)
	}
	if err != nil {
		return Right, fmt.Errorf("install %s: %w", path, explain(err))
	}
	b.kept[path] = binary.source
	return outcome, nil
}

type binary struct {
	name   string // on the node
	source string // its name in SourceDir
	mode   fs.FileMode
}

// sources returns the regular files to install, with one of the plugin's builds. It is an error if
// the plugin is missing or if two files would get the same name.
func (b *binaries) sources(build string) ([]binary, error) {
	if b.options.SourceDir == b.options.BinDir {
		return nil, fmt.Errorf("SourceDir and BinDir are both %s: name the directory that holds the files to install", b.options.BinDir)
	}
	entries, err := os.ReadDir(b.options.SourceDir)
	if err != nil {
		return nil, &OptionError{"SourceDir", fmt.Errorf("list the plugin's binaries: %w", err)}
	}
	var found []binary
	for _, entry := range entries {
		name, wanted := b.targetOf(entry.Name(), build)
		if !wanted || !entry.Type().IsRegular() || slices.Contains(b.options.SkipBinaries, name) {
			continue
		}
		if i := slices.IndexFunc(found, func(f binary) bool { return f.name == name }); i >= 0 {
			return nil, &OptionError{"SourceDir", fmt.Errorf("%s and %s in %s would both be installed as %s: remove one of them, or rename it",
				found[i].source, entry.Name(), b.options.SourceDir, name)}
		}
		info, err := entry.Info()
		if err != nil {
			return nil, fmt.Errorf("list the plugin's binaries: %w", err)
		}
		// Root runs the file: only its owner may write it.
		found = append(found, binary{name, entry.Name(), info.Mode().Perm() &^ 0o022})
	}
	if !b.options.bringsPlugin() {
		return found, nil // another program brings it
	}
	if !slices.ContainsFunc(found, func(f binary) bool { return f.name == b.options.plugin() && f.mode&0o100 != 0 }) {
		return nil, &OptionError{"SourceDir", fmt.Errorf("no executable %s in %s", build, b.options.SourceDir)}
	}
	return found, nil
}

// targetOf returns the name of a file on the node. The other builds of the plugin are not wanted,
// nor are files with the name of one of the installer's records.
func (b *binaries) targetOf(source, build string) (name string, wanted bool) {
	switch {
	case source == build:
		return b.options.plugin(), true
	case slices.Contains(b.options.Builds, source), slices.Contains(b.options.records(), source):
		return "", false
	}
	return source, true
}

// claimBinaries records what an uninstall must remove: the plugin, and each binary that did not
// exist before the install.
func (b *binaries) claimBinaries(found []binary) error {
	var fresh []string
	for _, binary := range found {
		_, err := b.binDir().Stat(binary.name)
		if binary.name == b.options.plugin() || isMissing(err) {
			fresh = append(fresh, binary.name)
		}
	}
	return b.claims.update(b.observer, func(c *claim) {
		for _, name := range fresh {
			if !slices.Contains(c.Binaries, name) {
				c.Binaries = append(c.Binaries, name)
			}
		}
	})
}

// explain adds advice to the errors of node directories that cannot be written.
func explain(err error) error {
	switch {
	case errors.Is(err, filesystem.ErrNoChown):
		return err // it has advice already, other than to run as root
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; mount the node's directory there, or name another one in the settings", err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; this platform keeps its CNI files elsewhere: set the path its documentation names", err)
	case errors.Is(err, syscall.EPERM): // permission bits give EACCES
		return fmt.Errorf("%w; the daemon has to run as root, with a security context that may write there, and the file must not be immutable"+
			" (lsattr, chattr -i)", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; the daemon has to run as root, with a security context that may write there", err)
	}
	return err
}
