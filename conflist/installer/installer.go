// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// Installer keeps a plugin on one node, and uninstalls it. Create it with [New].
type Installer struct {
	options  Options
	latest   *atomic.Pointer[Options] // set by Use
	claims   *claims
	observer filesystem.Observer
	cleaned  map[string]bool // the directories that removeStale has handled
	writes   upkeep.Streak   // of this part, for noisy
}

// New returns a node's installer. It reads and writes nothing yet. The error wraps [ErrOptions].
func New(o Options) (*Installer, error) {
	o = o.filled()
	if err := o.validate(); err != nil {
		return nil, err
	}
	latest := &atomic.Pointer[Options]{}
	latest.Store(&o)
	return &Installer{latest: latest, options: o, claims: newClaims(o), cleaned: map[string]bool{}}, nil
}

// refresh takes over the current options, and the observer of this pass.
func (i *Installer) refresh(ctx context.Context) {
	i.options, i.observer = *i.latest.Load(), filesystem.ObserverFrom(ctx)
}

// part returns the installer for one part or one call, which runs concurrently with others.
func (i *Installer) part() *Installer {
	own := *i
	own.cleaned = map[string]bool{}
	return &own
}

func (i *Installer) at(ctx context.Context) *Installer {
	own := i.part()
	own.refresh(ctx)
	return own
}

// noisy returns the weight of a write. A part that writes again and again is in a fight with
// another program; the daemon reports the fight as a whole, and single writes are for debugging.
func (i *Installer) noisy() Weight {
	const most = 5
	if i.writes.Add(i.options.Now()) > most {
		return Detail
	}
	return News
}

func (i *Installer) in(path string) filesystem.Directory {
	return filesystem.Directory{Path: path, Observer: i.observer}
}

func (i *Installer) binDir() filesystem.Directory { return i.in(i.options.BinDir) }
func (i *Installer) netDir() filesystem.Directory { return i.in(i.options.NetDir) }
func (i *Installer) runDir() filesystem.Directory { return i.in(i.options.RunDir) }

// runDirMode lets root's group read the directory, and no other user.
const runDirMode = 0o750

// Size limits of files that other programs write.
const (
	maxCredential = 1 << 20
	maxClaim      = 16 << 20
	maxCacheEntry = 16 << 20
)

// catchUp syncs what an earlier process may have changed before it was killed: what follows must
// not reach the disk before it.
func (i *Installer) catchUp(directories ...filesystem.Directory) {
	for _, d := range directories {
		if err := d.Sync(); err != nil && !isMissing(err) {
			i.options.emit(Warning, "can't make sure that an earlier process's changes are on the disk", "error", err)
		}
	}
}

// remove removes a file, if it exists, and reports it.
func (i *Installer) remove(path, what string) error {
	removed, err := i.in(filepath.Dir(path)).Remove(filepath.Base(path))
	if removed {
		i.options.emit(News, "removed "+what, "file", path)
	}
	return err
}

// staleAfter is the age at which a temporary file counts as a leftover. Another daemon may still be
// writing a younger one; no write takes that long.
const staleAfter = time.Minute

// removeStale removes, once in this process, the temporary files of killed processes.
func (i *Installer) removeStale(directory string, age time.Duration) {
	if i.cleaned[directory] {
		return
	}
	i.cleaned[directory] = true
	removed, err := i.in(directory).RemoveStale(i.options.Now().Add(-age))
	if len(removed) > 0 {
		i.options.emit(News, "removed what an earlier process left", "directory", directory, "files", removed)
	}
	if err != nil && !isMissing(err) {
		i.options.emit(Warning, "can't remove what an earlier process left", "error", err)
	}
}

// ErrWaiting is in the error of a [Part] that lacks something that only other programs can provide.
// Trying again makes no sense before something changes.
var ErrWaiting = reconciler.ErrWaiting

// Part keeps one part of the installation right, for daemons with a loop of their own;
// [Installer.Run] is such a loop. The parts of an installer may work concurrently, but not during
// an uninstall. The methods of one part may not be called concurrently.
type Part interface {
	// Name returns "binaries", "kubeconfig" or "config".
	Name() string
	// Directories returns the directories whose changes concern this part.
	Directories() []string
	// Concerns reports whether a change of the file at path may concern this part.
	Concerns(path string) bool
	// Ensure compares and, where something differs, writes. After an error that wraps [ErrWaiting]
	// or [ErrSuperseded], call it again only when something has changed, or at the time that an
	// Again() time.Time method in the error's chain returns.
	Ensure(ctx context.Context) (Result, error)
}

// Result is what a part has done.
type Result int

// The results.
const (
	// Right means that nothing had to be done.
	Right Result = iota
	// Wrote means that something was written, for a reason of our own. Call Ensure again at once.
	Wrote
	// Restored means that something was written because another program or the operator had undone
	// it. Call Ensure again at once.
	Restored
	// Overtaken means that another program was writing at the same time. Call Ensure again at once.
	Overtaken
)

// String is one word.
func (r Result) String() string { return [...]string{"right", "wrote", "restored", "overtaken"}[r] }

// Parts returns the parts that keep the node right, in the order of their dependencies.
func (i *Installer) Parts() []Part {
	var parts []Part
	if i.options.SourceDir != "" {
		parts = append(parts, i.binaries())
	}
	if i.options.Kubeconfig != nil {
		parts = append(parts, i.kubeconfig())
	}
	return append(parts, i.config())
}

// Use gives the installer other options, from the next look of each part on. Want.Plugin.Type,
// ClaimName, Owner, Version, Now and the On functions keep their values. The
// directories NetDir, NodeNetDir, BinDir, RunDir and CacheDir must be those that were given to
// [New], because they contain what was installed. SourceDir and Kubeconfig must be set if they
// were, and must not if they were not, because [Installer.Parts] depend on that. An error wraps
// [ErrOptions], and changes nothing.
func (i *Installer) Use(o Options) error {
	first := i.latest.Load()
	o.Want.Plugin.Type, o.ClaimName = first.Want.Plugin.Type, first.ClaimName
	o.Owner, o.Version, o.Now = first.Owner, first.Version, first.Now
	o.OnEvent, o.OnRestore, o.OnTake = first.OnEvent, first.OnRestore, first.OnTake
	o = o.filled()
	if err := o.validate(); err != nil {
		return err
	}
	if err := o.follows(*first); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	i.latest.Store(&o)
	return nil
}

// follows refuses options that an installer with the earlier ones cannot change to.
func (o Options) follows(before Options) error {
	var problems []error
	for _, directory := range []struct{ field, is, was string }{
		{"NetDir", o.NetDir, before.NetDir},
		{"NodeNetDir", o.NodeNetDir, before.NodeNetDir},
		{"BinDir", o.BinDir, before.BinDir},
		{"RunDir", o.RunDir, before.RunDir},
		{"CacheDir", o.CacheDir, before.CacheDir},
	} {
		if directory.is != directory.was {
			problems = append(problems, fmt.Errorf("the field %s has %q in place of %q: make another installer for another directory",
				directory.field, directory.is, directory.was))
		}
	}
	for _, part := range []struct {
		field   string
		is, was bool
	}{
		{"SourceDir", o.SourceDir != "", before.SourceDir != ""},
		{"Kubeconfig", o.Kubeconfig != nil, before.Kubeconfig != nil},
	} {
		switch {
		case part.is && !part.was:
			problems = append(problems, fmt.Errorf("the field %s is new: make another installer to add a part", part.field))
		case !part.is && part.was:
			problems = append(problems, fmt.Errorf("the field %s is missing: make another installer to leave a part out", part.field))
		}
	}
	return errors.Join(problems...)
}
