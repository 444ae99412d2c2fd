// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// maxRecord bounds what is read of the record.
const maxRecord = 8 << 20

// Live keeps a running daemon's settings in step with the settings directory and the template's
// file, and records them in a file of the run directory that other processes read with [Recorded].
// It is a piece of the installation (package installed), ahead of those that use the settings.
// Create it with [NewLive].
//
// A mounted ConfigMap changes as a whole, when the kubelet replaces a link; Live doesn't poll. Live
// settings take effect at once. Other changes and errors are logged once, and are in the record.
// The daemon stays ready despite a bad value: the value leaves the node as it was, and an unready
// daemon would make all nodes of a cluster unready at the same time.
type Live struct {
	loaded   Loaded
	use      func(Settings)
	log      *slog.Logger
	observer filesystem.Observer
}

// NewLive returns the piece for loaded settings. It calls use with the settings whenever a change
// takes effect.
func NewLive(loaded Loaded, log *slog.Logger, observer filesystem.Observer, use func(Settings)) *Live {
	return &Live{loaded: loaded, use: use, log: log, observer: observer}
}

// Name is "settings".
func (l *Live) Name() string { return "settings" }

// Directories returns those of the two that exist: the settings directory, and the directory of the
// template's file. A mount that is missing when the container starts does not appear later.
func (l *Live) Directories() []string {
	return slices.DeleteFunc(l.directories(), func(directory string) bool {
		info, err := os.Stat(directory)
		return err != nil || !info.IsDir()
	})
}

func (l *Live) directories() (all []string) {
	if directory := l.loaded.Settings.Directory; directory != "" {
		all = append(all, directory)
	}
	if file := l.loaded.Settings.TemplateFile; file != "" && !slices.Contains(all, filepath.Dir(file)) {
		all = append(all, filepath.Dir(file))
	}
	return all
}

// Concerns reports whether the file at path is in one of the directories. They may be mounted
// ConfigMaps, where any name may be the one that changes.
func (l *Live) Concerns(path string) bool {
	return slices.Contains(l.directories(), filepath.Dir(path))
}

// Ensure reads the settings again, and returns Wrote if a change took effect. Errors are only
// logged.
func (l *Live) Ensure(context.Context) (installer.Result, error) {
	next, err := l.loaded.Reload()
	if err != nil {
		l.log.Error("the settings directory can't be read; all settings stay as they are", "error", err)
		return installer.Right, nil
	}
	before := l.loaded
	l.loaded = next
	changed := !next.Settings.TemplateRead.same(before.Settings.TemplateRead)
	if changed {
		l.log.Info("the template for the plugin's entry has changed", "file", next.Settings.TemplateFile)
	}
	for i, value := range next.Values {
		changed = l.report(before.Values[i], value) || changed
	}
	if changed {
		l.use(next.Settings)
	}
	l.record()
	if changed {
		return installer.Wrote, nil
	}
	return installer.Right, nil
}

// report logs what is new about a value, and returns whether another one takes effect.
func (l *Live) report(before, now Value) (changed bool) {
	log := l.log.With("setting", now.Setting.Name)
	if now.Text != before.Text {
		log.Info("a setting has changed", "from", before.Text, "to", now.Text, "source", now.Source.String())
		changed = true
	}
	offer := now.Offer
	switch {
	case offer == nil || offer.same(before.Offer): // no news
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
func (l *Live) record() {
	data, err := json.MarshalIndent(l.loaded.Report(), "", "  ")
	if err == nil {
		runDir := filesystem.Directory{Path: l.loaded.Settings.RunDir, Observer: l.observer}
		_, err = runDir.Write(RecordName, append(data, '\n'), filesystem.Options{})
	}
	if err != nil {
		l.log.Debug("can't write down the settings", "error", err)
	}
}

// Recorded reads the record that a daemon left in a run directory. Without a record the error is
// fs.ErrNotExist.
func Recorded(runDir string) (Report, error) {
	var report Report
	data, err := filesystem.Directory{Path: runDir}.Read(RecordName, maxRecord)
	if err != nil {
		return report, err
	}
	if err := json.Unmarshal(data, &report); err != nil {
		return report, fmt.Errorf("%s: %w", filepath.Join(runDir, RecordName), err)
	}
	return report, nil
}

// RecordName is the file in the run directory in which a daemon leaves its [Report].
const RecordName = "install-cni.settings"

// Report is what is in effect, and what is not, as JSON.
type Report struct {
	// Settings omits settings without effect, unless they were set.
	Settings []ReportedValue `json:"settings"`
	// Unknown lists names that look like settings but are not.
	Unknown []string `json:"unknown,omitempty"`
}

// ReportedValue is one setting.
type ReportedValue struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Source  Source `json:"source"`
	Default string `json:"default"`
	// Live reports that the setting may change while the daemon runs.
	Live bool `json:"live,omitempty"`
	// Error is the error in the value; may be empty.
	Error string `json:"error,omitempty"`
	// Offer is a newer value that is not in effect.
	Offer *ReportedOffer `json:"offer,omitempty"`
}

// ReportedOffer is a value that is not in effect.
type ReportedOffer struct {
	Value  string `json:"value"`
	Source Source `json:"source"`
	// Error is empty for a value that takes effect at the next start.
	Error string `json:"error,omitempty"`
}

// Report returns the values for people and programs. No setting is a secret.
func (l Loaded) Report() Report {
	report := Report{Settings: []ReportedValue{}, Unknown: l.Unknown}
	for _, v := range l.Values {
		if v.Setting.Inert && !v.Source.Given() {
			continue
		}
		r := ReportedValue{
			Name: v.Setting.Name, Value: v.Text, Source: v.Source, Default: v.Setting.Default, Live: v.Setting.Live, Error: errorText(v.Err),
		}
		if v.Offer != nil {
			r.Offer = &ReportedOffer{Value: v.Offer.Text, Source: v.Offer.Source, Error: errorText(v.Offer.Err)}
		}
		report.Settings = append(report.Settings, r)
	}
	return report
}

// same reports whether an earlier offer, which may be nil, said the same.
func (o *Offer) same(as *Offer) bool {
	return as != nil && o.Text == as.Text && errorText(o.Err) == errorText(as.Err)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
