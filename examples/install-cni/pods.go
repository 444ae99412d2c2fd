// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"reflect"
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
	deletion   *deletion                  // may be nil
	now        atomic.Pointer[podConfigs] // for the next start
	news       chan struct{}              // signals a new report about repair
}

// podConfigs are the node-watcher's configurations, as the current settings have them.
type podConfigs struct {
	repair  *repairconf.Config // nil if repair is off
	ambient string             // an ambientconf.Config; empty if ambient mode is off
}

func newPodConfigs(s settings.Settings) (*podConfigs, error) {
	repair, err := s.RepairConfig()
	if err != nil {
		return nil, err
	}
	ambient, err := ambientText(s)
	return &podConfigs{repair, ambient}, err
}

// watcherName is the program of the node-watcher.
const watcherName = "node-watcher"

// newPodWatch returns nil if the node's name is not known.
func newPodWatch(env environment, s settings.Settings, log *slog.Logger, level *slog.LevelVar, deleted *deletion) (*podWatch, error) {
	if s.NodeName == "" {
		return nil, nil
	}
	configs, err := newPodConfigs(s)
	if err != nil {
		return nil, err
	}
	w := &podWatch{settings: s, level: level, executable: env.executable, deletion: deleted, news: make(chan struct{}, 1)}
	w.now.Store(configs)
	dir := filepath.Join(s.RunDir, watcherDirectory)
	o := watcher.Options{
		Dir: dir, Log: log, Command: func() ([]string, error) { return w.command(dir) }, OnInstalled: func(bool) {},
		OnRepair: func() { nudge(w.news) },
	}
	if deleted != nil {
		o.OnInstalled = deleted.hear
	}
	w.Watcher = watcher.New(o)
	return w, nil
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
	now := w.now.Load()
	if now.repair != nil {
		text, err := json.Marshal(mountedOnly(*now.repair))
		if err != nil {
			return nil, err
		}
		command = append(command, "-repair="+string(text))
	}
	if now.ambient != "" {
		command = append(command, "-feed="+feedSocket(s), "-ambient="+now.ambient)
	}
	if s.SkipTLSVerify {
		return append(command, "-skip-tls-verify"), nil
	}
	return append(command, "-ca-file="+s.CAPath()), nil
}

// mountedOnly returns the configuration without a look into network namespaces if the node's proc
// file system is not mounted, which [shortfalls] reports.
func mountedOnly(config repairconf.Config) repairconf.Config {
	if config.InPlace != nil && !isProc(config.InPlace.Proc) {
		config.InPlace = nil
	}
	return config
}

// use takes settings that have changed, and reports whether the node-watcher has to be started
// again: it takes what repair works with at its start. Of the configuration of ambient mode it uses
// nothing that changes while the daemon runs. After an error it goes on as it is. A node-watcher
// that is being started meanwhile may be started twice, but never stays with the earlier settings.
func (w *podWatch) use(s settings.Settings) (changed bool, err error) {
	next, err := newPodConfigs(s)
	if err != nil {
		return false, err
	}
	before := w.now.Swap(next)
	return !reflect.DeepEqual(before.repair, next.repair), nil
}
