// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
)

// Settings are the checked and parsed settings of install-cni. Paths are absolute and clean, as
// this process sees them unless stated otherwise.
type Settings struct {
	SourceDir         string // the plugin binaries that came with this program
	BinDir            string // the node's CNI binaries
	NetDir            string // the node's CNI configuration
	RunDir            string // the kubeconfig for the plugin; the same path here and on the node
	CacheDir          string // libcni's cache on the node
	ServiceAccountDir string // token and CA certificate
	CAFile            string // the API server's CA certificate; empty: ca.crt in ServiceAccountDir

	ConfName string // the primary configuration's file name; empty means the first valid one
	// FixedDefaultNetwork reports that the runtime uses ConfName's network, whatever file sorts
	// before it.
	FixedDefaultNetwork bool
	AskedMode           string // empty if it is not set; see InstallMode
	Standalone          bool   // chained-cni-plugin is false
	Owned               bool   // istio-owned-cni-config is true
	OwnFile             string // name of our own list; may be empty; see ConfFile
	GroupRead           bool
	Runtime             string // name and version of the container runtime; may be empty

	APIProtocol    string // "https", "http" or empty for https
	APIHost        string // name or address; may be empty
	APIPort        string // may be empty
	SkipTLSVerify  bool
	KubeconfigMode fs.FileMode

	PluginLogLevel    string
	PluginKubeconfig  string // path on the node; empty means the plugin's own default below RunDir
	PluginDataplane   string // one of pluginconf.Dataplanes, or empty for NativeNFTables
	PluginTimeout     pluginconf.Timeout
	AbandonedAfter    pluginconf.Timeout // empty means the plugin's own default
	PluginProcRoot    string             // path on the node; empty means the plugin's own default
	FailPolicy        pluginconf.FailPolicy
	StatusPolicy      string // "strict", "after-first-ready", "off" or empty for the plugin's own
	NativeNFTables    bool
	ExcludeNamespaces []string // may be empty, never nil
	PodNamespace      string   // this daemon's namespace; may be empty
	AgentName         string   // this daemon's DaemonSet; empty if it is not known
	PodName           string   // this daemon's pod; may be empty
	NodeName          string   // may be empty
	ReadinessTaint    string   // key; may be empty

	Directory       string // with a file for each setting; may be empty, or missing
	HealthAddress   string
	MetricsAddress  string // empty: not served
	PprofAddress    string // likewise
	NodeWatcher     string // empty: beside this program
	UninstallOnExit bool
	// UninstallOnDeletion is UninstallOnExit if the API server confirms that the DaemonSet is
	// deleted.
	UninstallOnDeletion bool
	// InstallationConfigMap is the ConfigMap in PodNamespace that is removed only at the end of the
	// installation; if it is empty, no object is watched.
	InstallationConfigMap string
	LogLevel              slog.Level
	LogJSON               bool

	Ambient Ambient
	Repair  Repair

	// Settings of Istio before 1.23.
	Template       string        // the plugin's entry with placeholders; may be empty
	TemplateFile   string        // a file with the same; may be empty
	TemplateRead   *TemplateRead // of TemplateFile; nil: each use reads the file
	TemplateLevel  string        // a name of pluginconf.ParseLevel, or empty
	NodeNetDir     string        // NetDir as the node sees it
	KubeconfigFile string        // name of the kubeconfig in NetDir; may be empty
	Install        bool
	UpdateBinaries bool
	SkipBinaries   []string // may be empty, never nil
	SecondBinDir   string   // may be empty, or missing

	// Ignored lists the settings that were set and have no effect.
	Ignored []string
}

// CAPath returns the file with the certificate of the API server's CA.
func (s Settings) CAPath() string {
	return cmp.Or(s.CAFile, filepath.Join(s.ServiceAccountDir, "ca.crt"))
}

// Owner returns the name of the installer for the records on the node: namespace/DaemonSet as far
// as these are known.
func (s Settings) Owner() string {
	if s.PodNamespace != "" && s.AgentName != "" {
		return s.PodNamespace + "/" + s.AgentName
	}
	return cmp.Or(s.PodNamespace, s.AgentName, "install-cni")
}

// relations returns an error for settings that are valid alone but contradict each other.
func (s Settings) relations() error {
	err := s.FailPolicy.Validate()
	if err != nil {
		err = fmt.Errorf("fail-open-namespaces and fail-closed-namespaces: %w", err)
	}
	_, templateErr := s.TemplateEntry()
	return errors.Join(err, s.apart(), s.modes(), templateErr, s.tainted(), s.ambientNeeds())
}

// apart requires directories that are written to not to contain each other: what is removed from
// one, or read from another, must not be in it by mistake.
func (s Settings) apart() error {
	written := []struct{ name, path string }{
		{"mounted-cni-net-dir", s.NetDir},
		{"mounted-cni-bin-dir", s.BinDir},
		{"cni-agent-run-dir", s.RunDir},
		{"secondary-cni-bin-dir", s.SecondBinDir},
	}
	var errs []error
	for i, a := range written {
		for _, b := range written[i+1:] {
			if a.path != "" && a.path == b.path {
				errs = append(errs, fmt.Errorf("%s and %s are both %s: name a directory for each", a.name, b.name, a.path))
			}
		}
		for _, read := range []struct{ name, path string }{
			{"cni-bin-source-dir", s.SourceDir}, {"service-account-dir", s.ServiceAccountDir}, {DirectorySetting, s.Directory},
		} {
			if read.path != "" && (a.path == read.path || strings.HasPrefix(a.path, read.path+"/")) {
				errs = append(errs, fmt.Errorf("%s is %s, in %s, which is only read from: name another directory", a.name, a.path, read.name))
			}
		}
	}
	return errors.Join(errs...)
}

// tainted requires the node's name if a taint is set.
func (s Settings) tainted() error {
	if s.ReadinessTaint != "" && s.NodeName == "" {
		return errors.New("readiness-taint is set, but the node's name is unknown: set node-name")
	}
	return nil
}
