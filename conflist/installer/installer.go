// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// Installer keeps a plugin on one node, and takes it away again. Make it with [New].
type Installer struct {
	options  Options
	latest   *atomic.Pointer[Options] // of Use
	claims   *claims
	observer filesystem.Observer
	cleaned  map[string]bool // the directories whose leftovers were looked for
	writes   upkeep.Streak   // of this part, for noisy
}

// New returns the installer of a node. It reads and writes nothing yet. The error wraps [ErrOptions].
func New(o Options) (*Installer, error) {
	o = o.filled()
	if err := o.validate(); err != nil {
		return nil, err
	}
	latest := &atomic.Pointer[Options]{}
	latest.Store(&o)
	return &Installer{latest: latest, options: o, claims: newClaims(o), cleaned: map[string]bool{}}, nil
}

// refresh takes over the options of this moment, and who sees the calls of this pass.
func (i *Installer) refresh(ctx context.Context) {
	i.options, i.observer = *i.latest.Load(), filesystem.ObserverFrom(ctx)
}

// part is the installer as one part or one call has it, which works beside the others.
func (i *Installer) part() *Installer {
	own := *i
	own.cleaned = map[string]bool{}
	return &own
}

// at is the installer for one call.
func (i *Installer) at(ctx context.Context) *Installer {
	own := i.part()
	own.refresh(ctx)
	return own
}

// noisy is the weight of a write. A part that writes again and again is in a fight with another program; the daemon sums that up, and the
// single writes are for debugging.
func (i *Installer) noisy() Weight {
	const most = 5
	if i.writes.Add(i.options.Now()) > most {
		return Detail
	}
	return News
}

// in is a directory of the node to work in.
func (i *Installer) in(path string) filesystem.Directory {
	return filesystem.Directory{Path: path, Observer: i.observer}
}

func (i *Installer) binDir() filesystem.Directory { return i.in(i.options.BinDir) }
func (i *Installer) netDir() filesystem.Directory { return i.in(i.options.NetDir) }
func (i *Installer) runDir() filesystem.Directory { return i.in(i.options.RunDir) }

// runDirMode lets root's group look, and no other user.
const runDirMode = 0o750

// Limits of what is read from files that others write.
const (
	maxCredential = 1 << 20
	maxClaim      = 16 << 20
	maxCacheEntry = 16 << 20
)

// catchUp makes durable what an earlier process may have changed and, killed, not synced: what follows must not reach the disk before it.
func (i *Installer) catchUp(directories ...filesystem.Directory) {
	for _, d := range directories {
		if err := d.Sync(); err != nil && !isMissing(err) {
			i.options.tell(Warning, "can't make sure that what an earlier process did is on the disk", "error", err)
		}
	}
}

// staleAfter is how old a temporary file must be before it is taken for a leftover, since another daemon may be writing: no write takes
// that long.
const staleAfter = time.Minute

// removeStale removes, once in this process, what an earlier one that was killed left in a directory.
func (i *Installer) removeStale(directory string, age time.Duration) {
	if i.cleaned[directory] {
		return
	}
	i.cleaned[directory] = true
	removed, err := i.in(directory).RemoveStale(i.options.Now().Add(-age))
	if len(removed) > 0 {
		i.options.tell(News, "removed what an earlier process left", "directory", directory, "files", removed)
	}
	if err != nil && !isMissing(err) {
		i.options.tell(Warning, "can't remove what an earlier process left", "error", err)
	}
}
