// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/meshcni/meshcni/examples/install-cni/internal/daemonset"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/examples/install-cni/internal/watcher"
	"github.com/meshcni/meshcni/examples/internal/repairconf"
	"github.com/meshcni/meshcni/kubeconfig"
)

// watcherName is the program of the node-watcher.
const watcherName = "node-watcher"

func (n *node) watcher() *watcher.Watcher {
	dir := filepath.Join(n.settings.RunDir, watcherDirectory)
	return watcher.New(watcher.Options{
		Dir: dir, Log: n.log, Command: func() ([]string, error) { return n.watcherCommand(dir) }, OnInstalled: n.hear,
		OnRepair: func() { nudge(n.repairNews) },
	})
}

// hear remembers whether the ConfigMap exists that is removed only at the end of the installation.
func (n *node) hear(there bool) {
	if n.deletion == nil {
		return
	}
	switch word, changed := n.deletion.Memory.Hear(there); {
	case changed && word == daemonset.Removed:
		n.log.Info("the installation's ConfigMap was removed: if the API server refuses to tell of the DaemonSet, that is its end",
			"configMap", n.settings.InstallationConfigMap)
	case changed:
		n.log.Debug("the installation's ConfigMap is there", "configMap", n.settings.InstallationConfigMap)
	}
}

// watcherCommand returns the node-watcher's command, with the values that the plugin's kubeconfig
// is made from.
func (n *node) watcherCommand(dir string) ([]string, error) {
	s := n.settings
	program := s.NodeWatcher
	if program == "" {
		own, err := n.env.executable()
		if err != nil {
			return nil, fmt.Errorf("find %s beside this program: %w; set node-watcher", watcherName, err)
		}
		program = filepath.Join(filepath.Dir(own), watcherName)
	}
	server, err := kubeconfig.ServerURL(s.APIProtocol, s.APIHost, s.APIPort)
	if err != nil {
		return nil, err
	}
	command := []string{
		program, "-node=" + s.NodeName, "-dir=" + dir, "-server=" + server.String(), "-log-level=" + n.level.Level().String(),
		"-token=" + filepath.Join(s.ServiceAccountDir, "token"),
	}
	if n.deletion != nil && s.InstallationConfigMap != "" {
		command = append(command, "-installation="+s.PodNamespace+"/"+s.InstallationConfigMap)
	}
	if repair := n.repairConfig(); repair != nil {
		text, err := json.Marshal(repair)
		if err != nil {
			return nil, err
		}
		command = append(command, "-repair="+string(text))
	}
	if s.SkipTLSVerify {
		return append(command, "-skip-tls-verify"), nil
	}
	return append(command, "-ca-file="+s.CAPath()), nil
}

// repairConfig returns the node-watcher's configuration for repair; nil if repair is off. If the
// node's proc file system is not mounted, no network namespace is looked at, which
// [node.shortfalls] reports.
func (n *node) repairConfig() *repairconf.Config {
	config := n.settings.RepairConfig()
	if excluded := n.excluded.Load(); config != nil && excluded != nil {
		config.ExcludeNamespaces = *excluded
	}
	if config != nil && config.InPlace != nil && !isProc(config.InPlace.Proc) {
		config.InPlace = nil
	}
	return config
}

// exclude applies the namespaces that are excluded now: repair must not take their pods for pods
// that are not captured.
func (n *node) exclude(s settings.Settings) {
	before := n.excluded.Swap(&s.ExcludeNamespaces)
	if before != nil && !slices.Equal(*before, s.ExcludeNamespaces) && n.settings.NodeName != "" && n.supervisor != nil {
		n.supervisor.Restart(watcher.PartName, "the excluded namespaces have changed")
	}
}
