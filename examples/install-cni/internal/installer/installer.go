// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/examples/install-cni/internal/dataplane"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/internal/backoff"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// Installer is what the parts and the uninstall of one node share. Make it with [New].
type Installer struct {
	settings settings.Settings
	latest   *atomic.Pointer[settings.Settings] // of Use
	claims   *claims
	log      *slog.Logger
	now      func() time.Time
	observer filesystem.Observer
	chooser  Chooser
	restored func(reconciler.Change)
	cleaned  map[string]bool // the directories whose leftovers were looked for
	writes   backoff.Streak  // of this part, for noisy
}

// Options are what an installer needs beside the settings.
type Options struct {
	// Version goes into the records on the node.
	Version string
	Log     *slog.Logger
	// Now is the clock.
	Now func() time.Time
	// Restored, unless it is nil, is told when the plugin is put back into the CNI configuration, and who had taken it away.
	Restored func(reconciler.Change)
	// Kept, unless it is nil, is told when this daemon has taken the node, at first and after a newer one has left. It must not wait.
	Kept func()
	// Observer sees each change of a file; nil for none.
	Observer filesystem.Observer
	// Dataplane chooses how the plugin writes rules; nil has it do as the settings say.
	Dataplane Chooser
}

// Chooser chooses how the plugin writes rules, as [dataplane.Chooser] does.
type Chooser interface {
	// Choose is for a setting, one of [pluginconf.Dataplanes].
	Choose(ctx context.Context, setting string) dataplane.Choice
}

// New returns the installer for a node.
func New(s settings.Settings, o Options) *Installer {
	latest := &atomic.Pointer[settings.Settings]{}
	latest.Store(&s)
	return &Installer{
		latest: latest, settings: s, claims: newClaims(s, o), log: o.Log, now: o.Now, observer: o.Observer, chooser: o.Dataplane,
		restored: o.Restored, cleaned: map[string]bool{},
	}
}

// Use has the parts work with other settings, which differ in what may change while the daemon runs, when they look the next time.
func (i *Installer) Use(s settings.Settings) { i.latest.Store(&s) }

// refresh takes over the settings of this moment.
func (i *Installer) refresh() { i.settings = *i.latest.Load() }

// part is the installer as one part has it, which works beside the others.
func (i *Installer) part() *Installer {
	own := *i
	own.cleaned = map[string]bool{}
	return &own
}

// noisy is the level to log a write at. A part that writes again and again is in a fight with another program; the daemon sums that up, and the
// single writes are for debugging.
func (i *Installer) noisy() slog.Level {
	const most = 5
	if i.writes.Add(i.now()) > most {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// dataplane is how the plugin is to write rules.
func (i *Installer) dataplane(ctx context.Context) dataplane.Choice {
	set := i.settings.PluginDataplane
	setting := pluginconf.Config{Dataplane: set, NativeNFTables: i.settings.NativeNFTables}.Chosen()
	if i.chooser == nil {
		return dataplane.Choice{Setting: set, IPTables: setting == pluginconf.IPTables}
	}
	return i.chooser.Choose(ctx, setting)
}

// in is a directory of the node to work in.
func (i *Installer) in(path string) filesystem.Directory {
	return filesystem.Directory{Path: path, Observer: i.observer}
}

func (i *Installer) binDir() filesystem.Directory { return i.in(i.settings.BinDir) }
func (i *Installer) netDir() filesystem.Directory { return i.in(i.settings.NetDir) }
func (i *Installer) runDir() filesystem.Directory { return i.in(i.settings.RunDir) }

// catchUp makes durable what an earlier process may have changed and, killed, not synced: what follows must not reach the disk before it.
func (i *Installer) catchUp(directories ...filesystem.Directory) {
	for _, d := range directories {
		if err := d.Sync(); err != nil && !isMissing(err) {
			i.log.Warn("can't make sure that what an earlier process did is on the disk", "error", err)
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
	removed, err := i.in(directory).RemoveStale(i.now().Add(-age))
	if len(removed) > 0 {
		i.log.Info("removed what an earlier process left", "directory", directory, "files", removed)
	}
	if err != nil && !isMissing(err) {
		i.log.Warn("can't remove what an earlier process left", "error", err)
	}
}

// The parts may work at the same time as each other, and not as an uninstall.

// Binaries is the part that installs the plugin's binaries.
func (i *Installer) Binaries() *Binaries {
	return &Binaries{Installer: i.part(), kept: map[string]string{}}
}

// Kubeconfig is the part that writes the plugin's kubeconfig.
func (i *Installer) Kubeconfig() *Kubeconfig { return &Kubeconfig{Installer: i.part()} }

// Config is the part that puts the plugin into the primary CNI configuration.
func (i *Installer) Config() *Config { return &Config{Installer: i.part()} }
