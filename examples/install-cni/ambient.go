// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/examples/install-cni/internal/ambientpart"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

// ambientName is the program that keeps the node's pods in ambient mode.
const ambientName = "node-ambient"

// ambientMode runs node-ambient.
type ambientMode struct {
	*ambientpart.Ambient
	settings   settings.Settings // of the start
	level      *slog.LevelVar    // of the log
	executable func() (string, error)
	config     atomic.Pointer[string] // an ambientconf.Config, as of now
}

// newAmbientMode returns nil unless the settings ask for ambient mode.
func newAmbientMode(env environment, s settings.Settings, log *slog.Logger, level *slog.LevelVar, o ambientpart.Options) (*ambientMode, error) {
	config, err := ambientText(s)
	if err != nil || config == "" {
		return nil, err
	}
	a := &ambientMode{settings: s, level: level, executable: env.executable}
	a.config.Store(&config)
	o.Command, o.Events, o.Proxy, o.Log = a.command, s.EventSocket(), s.Ambient.ProxySocket, log
	a.Ambient = ambientpart.New(o)
	return a, nil
}

// ambientText returns the configuration of the programs of ambient mode, as JSON; empty if it is
// off.
func ambientText(s settings.Settings) (string, error) {
	config, err := s.AmbientConfig()
	if err != nil || config == nil {
		return "", err
	}
	text, err := json.Marshal(config)
	return string(text), err
}

// command returns the command line of node-ambient.
func (a *ambientMode) command() ([]string, error) {
	s := a.settings
	program, err := programBeside(a.executable, s.Ambient.Program, ambientName)
	if err != nil {
		return nil, err
	}
	proc := s.Repair.ProcDir
	if proc == "" {
		return nil, errors.New("mounted-proc-dir is empty: mount the node's /proc, and name it there")
	}
	return []string{
		program, "-feed=" + feedSocket(s), "-events=" + s.EventSocket(), "-proxy=" + s.Ambient.ProxySocket,
		"-journal=" + agentRecords(s), "-settings=" + *a.config.Load(), "-proc=" + proc,
		"-netns=" + strings.Join(s.Repair.NetnsDirs, ","), "-results=" + filepath.Join(s.CacheDir, "results"), "-host-root=" + hostRoot(proc),
		"-log-level=" + a.level.Level().String(),
	}, nil
}

// hostRoot returns where the node's file system is mounted, as the place of its /proc shows:
// /host/proc is in /host.
func hostRoot(proc string) string {
	if root, name := filepath.Split(proc); name == "proc" {
		return filepath.Clean(root)
	}
	return "/"
}

// feedSocket is where node-watcher tells node-ambient of pods.
func feedSocket(s settings.Settings) string {
	return filepath.Join(s.RunDir, watcherDirectory, "feed.sock")
}

// use applies settings that have changed. It reports whether the process has to be started again:
// it takes what it works with at its start. Its pods stay captured meanwhile, and served.
func (a *ambientMode) use(s settings.Settings) (changed bool, err error) {
	config, err := ambientText(s)
	if err != nil || config == "" {
		return false, err
	}
	return *a.config.Swap(&config) != config, nil
}

// withdrawTime bounds how long the pods are waited for that leave the mesh before an uninstall. It
// is longer than the default of drain-timeout. With [daemonset.AskTime] and [uninstallTime] it fits
// into the chart's 60 seconds of grace.
const withdrawTime = 25 * time.Second

// withdraw takes all pods out of the mesh, before the plugin's entry goes: what is left in a pod
// would lead to a proxy that is about to go, too. Pods that are not out in time keep rules that
// capture no new connection. A node that another daemon has taken over keeps its pods.
func (d *daemon) withdraw(ctx context.Context) {
	if d.ambient == nil || !d.installer.Keeps() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, withdrawTime)
	defer cancel()
	out := 0
	left, err := event.Withdraw(ctx, d.settings.EventSocket(), event.Selection{}, func(event.PodState) { out++ })
	for _, pod := range left {
		d.log.Warn("a pod is still leaving the mesh", "pod", pod.String(), "step", pod.Step, "error", pod.Error)
	}
	if err != nil {
		d.log.Warn(withdrawWarning(left, err), "out", out, "left", len(left), "error", err)
		return
	}
	d.log.Info("all pods have left the mesh", "pods", out)
}

// withdrawWarning says what an uninstall leaves that could not have all pods leave the mesh.
func withdrawWarning(left []event.PodState, err error) string {
	answer, answered := errors.AsType[*event.Error](err)
	switch {
	case len(left) > 0:
		return "pods are still in the mesh at the uninstall: restart them, or run install-cni ambient withdraw before the next uninstall"
	case answered && answer.Code == event.CodeUnfinished:
		return "no pod is left in the mesh at the uninstall, but the agent has not done everything: the error says what is left"
	}
	return "the agent cannot take the pods out of the mesh at the uninstall: restart those that are in it"
}

// programBeside returns a program's path: that of the setting, or else beside this program.
func programBeside(executable func() (string, error), setting, name string) (string, error) {
	if setting != "" {
		return setting, nil
	}
	own, err := executable()
	if err != nil {
		return "", fmt.Errorf("find %s beside this program: %w; set %s", name, err, name)
	}
	return filepath.Join(filepath.Dir(own), name), nil
}
