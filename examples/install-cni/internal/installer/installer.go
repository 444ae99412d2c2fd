// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"log/slog"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

// Installer is what the parts and the uninstall of one node share. Make it with [New].
type Installer struct {
	settings settings.Settings
	claims   *claims
	log      *slog.Logger
	now      func() time.Time
}

// New returns the installer for a node. The version goes into the records on it.
func New(s settings.Settings, version string, log *slog.Logger, now func() time.Time) *Installer {
	return &Installer{settings: s, claims: newClaims(s, version, log, now), log: log, now: now}
}

// Binaries is the part that installs the plugin's binaries.
func (i *Installer) Binaries() *Binaries { return &Binaries{Installer: i} }

// Kubeconfig is the part that writes the plugin's kubeconfig.
func (i *Installer) Kubeconfig() *Kubeconfig { return &Kubeconfig{Installer: i} }

// Config is the part that puts the plugin into the primary CNI configuration.
func (i *Installer) Config() *Config { return &Config{Installer: i} }
