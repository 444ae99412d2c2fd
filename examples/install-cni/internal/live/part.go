// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// maxRecord bounds what is read of the record.
const maxRecord = 8 << 20

// Part is a part of the daemon (package daemon), which runs before the parts that use the settings.
// Create it with [New].
type Part struct {
	loaded   settings.Loaded
	use      func(settings.Settings)
	log      *slog.Logger
	observer filesystem.Observer
}

// New returns a part for loaded settings. It calls use with the settings whenever a change takes
// effect.
func New(loaded settings.Loaded, log *slog.Logger, observer filesystem.Observer, use func(settings.Settings)) *Part {
	return &Part{loaded: loaded, use: use, log: log, observer: observer}
}

// Name is "settings".
func (p *Part) Name() string { return "settings" }

// Directories returns the settings directory. If the mount is missing when the container starts, it
// does not appear later.
func (p *Part) Directories() []string {
	directory := p.loaded.Settings.Directory
	if info, err := os.Stat(directory); directory == "" || err != nil || !info.IsDir() {
		return nil
	}
	return []string{directory}
}

// Concerns reports whether the file at path is in the settings directory.
func (p *Part) Concerns(path string) bool {
	return filepath.Dir(path) == p.loaded.Settings.Directory
}

// Ensure reads the settings again, and returns Wrote if a change took effect. Errors are only
// logged.
func (p *Part) Ensure(context.Context) (upkeep.Outcome, error) {
	next, err := p.loaded.Reload()
	if err != nil {
		p.log.Error("the settings directory can't be read; all settings stay as they are", "error", err)
		return upkeep.Right, nil
	}
	before := p.loaded
	p.loaded = next
	changed := false
	for i, value := range next.Values {
		changed = p.tell(before.Values[i], value) || changed
	}
	if changed {
		p.use(next.Settings)
	}
	p.record()
	if changed {
		return upkeep.Wrote, nil
	}
	return upkeep.Right, nil
}

// tell logs what is new about a value, and reports whether another one takes effect.
func (p *Part) tell(before, now settings.Value) (changed bool) {
	log := p.log.With("setting", now.Setting.Name)
	if now.Text != before.Text {
		log.Info("a setting has changed", "from", before.Text, "to", now.Text, "source", now.Source.String())
		changed = true
	}
	offer := now.Offer
	switch {
	case offer == nil || (before.Offer != nil && *before.Offer == *offer): // no news
	case before.Offer != nil && before.Offer.Text == offer.Text:
	case offer.Err != nil:
		log.Error("a new value is refused; the old one stays", "error", offer.Err, "old", now.Text)
	default:
		log.Warn("a new value takes effect with the next start: this setting can't change while the daemon runs",
			"value", offer.Text, "source", offer.Source.String(), "until_then", now.Text)
	}
	return changed
}

// record writes the settings in effect to a file; without a run directory, no program would look
// for it.
func (p *Part) record() {
	data, err := json.MarshalIndent(p.loaded.Report(), "", "  ")
	if err == nil {
		runDir := filesystem.Directory{Path: p.loaded.Settings.RunDir, Observer: p.observer}
		_, err = runDir.Write(settings.RecordName, append(data, '\n'), filesystem.Options{})
	}
	if err != nil {
		p.log.Debug("can't leave word of the settings", "error", err)
	}
}

// Recorded reads the record that a daemon left in a run directory. Without a record the error is
// fs.ErrNotExist.
func Recorded(runDir string) (settings.Report, error) {
	var report settings.Report
	data, err := filesystem.Directory{Path: runDir}.Read(settings.RecordName, maxRecord)
	if err != nil {
		return report, err
	}
	if err := json.Unmarshal(data, &report); err != nil {
		return report, fmt.Errorf("%s: %w", filepath.Join(runDir, settings.RecordName), err)
	}
	return report, nil
}
