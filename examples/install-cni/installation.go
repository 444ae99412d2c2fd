// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/examples/install-cni/internal/dataplane"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/spool"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// installation makes the options of an installer from settings.
type installation struct {
	env     environment
	log     *slog.Logger
	chooser chooser // nil: the plugin follows the settings
}

// chooser chooses how the plugin writes rules, as [dataplane.Chooser] does.
type chooser interface {
	// Choose returns the choice for a setting, one of [pluginconf.Dataplanes].
	Choose(ctx context.Context, setting string) dataplane.Choice
}

// installation returns the installation that these settings describe in this environment.
func (e environment) installation(log *slog.Logger, s settings.Settings) installation {
	i := installation{env: e, log: log}
	if e.dataplane != nil {
		i.chooser = e.dataplane(log, s.Repair.ProcDir)
	}
	return i
}

// installer returns the installer for the node that the settings describe.
func (e environment) installer(log *slog.Logger, s settings.Settings) (*installer.Installer, error) {
	return installer.New(e.installation(log, s).options(s))
}

// watched returns a context in which the environment observes each change of a file.
func (e environment) watched(ctx context.Context) context.Context {
	return filesystem.WithObserver(ctx, e.files)
}

// withIPTables is the plugin's build with iptables, which is installed instead of the other one.
const withIPTables = settings.PluginType + "-iptables"

// watcherDirectory is the directory of the node-watcher's socket, in the run directory.
const watcherDirectory = "node-watcher"

func (i installation) options(s settings.Settings) installer.Options {
	plugin, err := s.PluginConfig() // an unusable template does not keep an uninstall from its work
	return installer.Options{
		Want: reconciler.Want{
			Plugin: conflist.Plugin{Type: settings.PluginType}, Mode: s.InstallMode(), Primary: s.Primary(), ByName: s.FixedDefaultNetwork,
			File: s.ConfFile(), FileMode: s.ConfMode(), Runtime: s.Runtime,
		},
		Entry: func(ctx context.Context) (json.RawMessage, error) {
			if err != nil {
				return nil, err
			}
			chosen := s
			chosen.PluginDataplane = i.dataplane(ctx, s, plugin).Setting
			return chosen.Entry()
		},
		SourceDir: s.SourceDir, Builds: []string{settings.PluginType, withIPTables},
		Build: func(ctx context.Context) string {
			if i.dataplane(ctx, s, plugin).IPTables {
				return withIPTables
			}
			return settings.PluginType
		},
		KeepBinaries: !s.UpdateBinaries, SkipBinaries: s.SkipBinaries,
		NetDir: s.NetDir, NodeNetDir: s.NodeNetDir, BinDir: s.BinDir, SecondBinDir: s.SecondBinDir, RunDir: s.RunDir, CacheDir: s.CacheDir,
		Sockets: []string{podsource.AgentSocket, spool.IstioLogSocket, filepath.Join(watcherDirectory, podsource.AgentSocket)},
		Records: []string{settings.RecordName},
		Kubeconfig: &installer.Kubeconfig{
			Path: s.KubeconfigPath(), Mode: s.KubeconfigMode, Protocol: s.APIProtocol, Host: s.APIHost, Port: s.APIPort,
			Insecure: s.SkipTLSVerify, TokenFile: filepath.Join(s.ServiceAccountDir, "token"), CAFile: s.CAPath(),
		},
		Owner: s.Owner(), Version: i.env.version, Now: i.env.now,
		OnEvent: func(e installer.Event) { logEvent(i.log, e) },
	}
}

// dataplane returns how the plugin writes rules whose entry, without a choice, is parsed as plugin.
func (i installation) dataplane(ctx context.Context, s settings.Settings, plugin pluginconf.Config) dataplane.Choice {
	setting := plugin.Chosen()
	if i.chooser == nil {
		return dataplane.Choice{Setting: s.PluginDataplane, IPTables: setting == pluginconf.IPTables}
	}
	return i.chooser.Choose(ctx, setting)
}

func logEvent(log *slog.Logger, e installer.Event) {
	facts := make([]slog.Attr, 0, len(e.Facts))
	for _, fact := range e.Facts {
		facts = append(facts, slog.Any(fact.Name, fact.Value))
	}
	log.LogAttrs(context.Background(), slog.Level(e.Weight), e.Message, facts...)
}

// hint adds the setting that fixes the cause to an error of the installer.
func hint(err error, s settings.Settings) error {
	if errors.Is(err, installer.ErrInUse) {
		return fmt.Errorf("%w, or have it uninstall itself with uninstall-on-exit", err)
	}
	var option *installer.OptionError
	if !errors.As(err, &option) {
		return err
	}
	switch option.Option {
	case "SourceDir":
		return fmt.Errorf("%w; set cni-bin-source-dir to the directory that holds the plugin", err)
	case "Kubeconfig.CAFile":
		return fmt.Errorf("%w; name its file with kube-ca-file, or set skip-tls-verify", err)
	case "NodeNetDir":
		return fmt.Errorf("%w (cni-net-dir is %s: set it to the path that the directory has on the node)", err, s.NodeNetDir)
	case "Want.Primary":
		return fmt.Errorf("%w (cni-conf-name is %s; with fixed-default-network, files that sort before it don't matter)", err, s.ConfName)
	}
	return err
}

// kept is a part of the installer, as a piece of the installation.
type kept struct {
	installer.Part
	env      environment
	settings settings.Settings
	wrote    func() // called after a write
}

func (k kept) Pace() upkeep.Bucket { return upkeep.PaceOf(k.Part) }

func (k kept) Ensure(ctx context.Context) (installer.Result, error) {
	result, err := k.Part.Ensure(k.env.watched(ctx))
	if result != installer.Right {
		k.wrote()
	}
	return result, hint(err, k.settings)
}
