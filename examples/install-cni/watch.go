// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"

	"github.com/meshcni/meshcni/examples/install-cni/internal/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/watcher"
	"github.com/meshcni/meshcni/kubeconfig"
)

// watcherName is the program that watches the node's pods.
const watcherName = "node-watcher"

// watcher knows the node's pods.
func (n *node) watcher() *watcher.Watcher {
	dir := filepath.Join(n.settings.RunDir, installer.WatcherDirectory)
	return watcher.New(watcher.Options{Dir: dir, Log: n.log, Command: func() ([]string, error) { return n.watcherCommand(dir) }})
}

// watcherCommand starts it with what the plugin's kubeconfig is made from.
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
	if s.SkipTLSVerify {
		return append(command, "-skip-tls-verify"), nil
	}
	return append(command, "-ca-file="+s.CAPath()), nil
}
