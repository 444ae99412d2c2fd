// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/internal/spool"
)

// PluginPaths returns where the plugin finds the daemon unless its configuration differs.
func PluginPaths() pluginconf.Paths { return pluginconf.PathsOf("istio-cni") }

// oldKubeconfigName is the name of the kubeconfig in Istio before 1.23, where it was stored beside
// the CNI configurations.
const oldKubeconfigName = "ZZZ-istio-cni-kubeconfig"

// KubeconfigPath returns the path of the plugin's kubeconfig, as this process sees it: in the run
// directory, or beside the CNI configurations as in Istio before 1.23.
func (s Settings) KubeconfigPath() string {
	if s.oldKubeconfig() {
		return filepath.Join(s.NetDir, s.KubeconfigName())
	}
	return filepath.Join(s.RunDir, s.KubeconfigName())
}

// KubeconfigOnNode returns the path of the same file as the plugin sees it.
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

// KubeconfigName returns the file's name.
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

// LogSocket returns the path where Istio's plugins send what they log.
func (s Settings) LogSocket() string { return filepath.Join(s.RunDir, spool.IstioLogSocket) }

// kubeconfigName parses the bare name of a kubeconfig, or nothing. An uninstall removes the file of
// this name, so the name must show what the file is, and no container runtime may take it for a
// configuration.
func kubeconfigName(of func(*Settings) *string) parser {
	return checked("name", shape{Type: "string", Pattern: `^([^/]*kubeconfig)?$`}, of, func(name string) error {
		if name != "" && (name != filepath.Base(name) || !filepath.IsLocal(name) || !strings.HasSuffix(name, "kubeconfig")) {
			return fmt.Errorf("write a bare file name that ends in kubeconfig, such as %s", oldKubeconfigName)
		}
		return nil
	})
}
