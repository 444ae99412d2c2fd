// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"path/filepath"

	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

const (
	// pluginType is the plugin's type in CNI configurations, and its binary's name.
	pluginType = "istio-cni"
	// claimName and markerName lie beside the binary.
	claimName  = pluginType + ".claim"
	markerName = pluginType + ".uninstalled"
)

// runDirMode lets root's group look, and nobody else.
const runDirMode = 0o750

// Limits of what is read from files that others write.
const (
	maxCredential = 1 << 20
	maxClaim      = 16 << 20
	maxCacheEntry = 16 << 20
)

// ErrWaiting is in the error of a part that lacks something only others can bring; there is no use in trying again before they have.
var ErrWaiting = reconciler.ErrWaiting

// binaryPath is where the plugin is installed.
func binaryPath(s settings.Settings) string { return filepath.Join(s.BinDir, pluginType) }

func kubeconfigPath(s settings.Settings) string { return s.KubeconfigPath() }

func markerPath(s settings.Settings) string { return filepath.Join(s.BinDir, markerName) }
