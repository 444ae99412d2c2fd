// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/internal/spool"
)

// PluginPaths are where the plugin finds the daemon, as long as its configuration doesn't say so.
func PluginPaths() pluginconf.Paths { return pluginconf.PathsOf("istio-cni") }

// oldKubeconfigName is how the kubeconfig was called in Istio before 1.23, where it lay beside the CNI configurations.
const oldKubeconfigName = "ZZZ-istio-cni-kubeconfig"

// KubeconfigPath is where the plugin's kubeconfig is written, as this process sees it: in the run directory, or beside the CNI
// configurations, where Istio before 1.23 had it.
func (s Settings) KubeconfigPath() string {
	if s.oldKubeconfig() {
		return filepath.Join(s.NetDir, s.KubeconfigName())
	}
	return filepath.Join(s.RunDir, s.KubeconfigName())
}

// KubeconfigOnNode is the same file as the plugin sees it.
func (s Settings) KubeconfigOnNode() string {
	switch {
	case s.PluginKubeconfig != "":
		return s.PluginKubeconfig
	case s.oldKubeconfig():
		return filepath.Join(s.NodeNetDir, s.KubeconfigName())
	default:
		return filepath.Join(s.RunDir, s.KubeconfigName())
	}
}

// KubeconfigName is the file's name.
func (s Settings) KubeconfigName() string {
	switch {
	case s.KubeconfigFile != "":
		return s.KubeconfigFile
	case s.HasTemplate():
		return oldKubeconfigName
	default:
		return PluginPaths().Kubeconfig
	}
}

func (s Settings) oldKubeconfig() bool { return s.KubeconfigFile != "" || s.HasTemplate() }

// LogSocket is where plugins of Istio's send what they log.
func (s Settings) LogSocket() string { return filepath.Join(s.RunDir, spool.IstioLogSocket) }

// checkKubeconfigName wants a bare name that says what the file is, and that no container runtime takes for a configuration: it is the
// name of a file that an uninstall removes.
func checkKubeconfigName(name string) error {
	if name != filepath.Base(name) || !filepath.IsLocal(name) || !strings.HasSuffix(name, "kubeconfig") {
		return fmt.Errorf("write a bare file name that ends in kubeconfig, such as %s", oldKubeconfigName)
	}
	return nil
}
