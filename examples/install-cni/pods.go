// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/examples/install-cni/internal/watcher"
	"github.com/meshcni/meshcni/examples/internal/repairconf"
	"github.com/meshcni/meshcni/kubeconfig"
)

// podWatch runs the node-watcher, which knows the node's pods and repairs them.
type podWatch struct {
	*watcher.Watcher
	settings   settings.Settings // of the start
	level      *slog.LevelVar    // of the log
	executable func() (string, error)
	deletion   *deletion                         // may be nil
	now        atomic.Pointer[settings.Settings] // whose excluded namespaces count
	config     atomic.Pointer[repairconf.Config] // of the command; nil without repair
	news       chan struct{}                     // signals a new report about repair
}

// watcherName is the program of the node-watcher.
const watcherName = "node-watcher"

// newPodWatch returns nil if the node's name is not known.
func newPodWatch(env environment, s settings.Settings, log *slog.Logger, level *slog.LevelVar, deleted *deletion) *podWatch {
	if s.NodeName == "" {
		return nil
	}
	w := &podWatch{settings: s, level: level, executable: env.executable, deletion: deleted, news: make(chan struct{}, 1)}
	w.now.Store(&s)
	dir := filepath.Join(s.RunDir, watcherDirectory)
	o := watcher.Options{
		Dir: dir, Log: log, Command: func() ([]string, error) { return w.command(dir) }, OnInstalled: func(bool) {},
		OnRepair: func() { nudge(w.news) },
	}
	if deleted != nil {
		o.OnInstalled = deleted.hear
	}
	w.Watcher = watcher.New(o)
	return w
}

// command returns the node-watcher's command line, with the values that the plugin's kubeconfig is
// made from.
func (w *podWatch) command(dir string) ([]string, error) {
	s := w.settings
	program, err := programBeside(w.executable, s.NodeWatcher, watcherName)
	if err != nil {
		return nil, err
	}
	server, err := kubeconfig.ServerURL(s.APIProtocol, s.APIHost, s.APIPort)
	if err != nil {
		return nil, err
	}
	command := []string{
		program, "-node=" + s.NodeName, "-dir=" + dir, "-server=" + server.String(), "-log-level=" + w.level.Level().String(),
		"-token=" + filepath.Join(s.ServiceAccountDir, "token"),
	}
	if w.deletion != nil && s.InstallationConfigMap != "" {
		command = append(command, "-installation="+s.PodNamespace+"/"+s.InstallationConfigMap)
	}
	repair, err := w.repairConfig()
	if err != nil {
		return nil, err
	}
	w.config.Store(repair)
	if repair != nil {
		text, err := json.Marshal(repair)
		if err != nil {
			return nil, err
		}
		command = append(command, "-repair="+string(text))
	}
	if text, err := ambientText(s); err != nil {
		return nil, err
	} else if text != "" {
		command = append(command, "-feed="+feedSocket(s), "-ambient="+text)
	}
	if s.SkipTLSVerify {
		return append(command, "-skip-tls-verify"), nil
	}
	return append(command, "-ca-file="+s.CAPath()), nil
}

// repairConfig returns the node-watcher's configuration for repair; nil if repair is off. If the
// node's proc file system is not mounted, no network namespace is looked at, which
// [shortfalls] reports.
func (w *podWatch) repairConfig() (*repairconf.Config, error) {
	config, err := w.settings.RepairConfig()
	if config == nil || err != nil {
		return nil, err
	}
	now, err := w.now.Load().RepairConfig()
	if err != nil {
		return nil, err
	}
	config.ExcludeNamespaces = now.ExcludeNamespaces
	if config.InPlace != nil && !isProc(config.InPlace.Proc) {
		config.InPlace = nil
	}
	return config, nil
}

// use applies the namespaces that the plugin is told to leave alone now, so that repair doesn't
// take their pods for pods that lack their rules. It reports whether the node-watcher has others.
func (w *podWatch) use(s settings.Settings) (changed bool) {
	w.now.Store(&s)
	has := w.config.Load()
	if has == nil {
		return false
	}
	now, err := w.repairConfig()
	return err != nil || !slices.Equal(has.ExcludeNamespaces, now.ExcludeNamespaces)
}
