// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/meshcni/meshcni/conflist/reconciler"
)

// ErrOptions is in the error for invalid options.
var ErrOptions = errors.New("invalid options")

// Options are what is installed on a node, and where. Paths are absolute, and as this process sees
// them unless the field states otherwise. Only Want.Plugin.Type and SourceDir are required for an
// install. [New] checks Want, names and paths; a missing directory, or an address that leads
// nowhere, causes an error when it is used.
type Options struct {
	// Want is how the plugin gets into the CNI configuration. Want.Plugin.Type is the plugin's
	// type, and the name of its binary in BinDir. Want.Plugin.Body is its entry, and is ignored if
	// Entry is set. An empty body is {"type": TYPE}.
	Want reconciler.Want
	// Entry, unless it is nil, returns the current entry, in place of Want.Plugin.Body. It is
	// called at each look. If it fails, or returns an invalid entry, the last installed entry
	// stays, and is restored when it is removed.
	Entry func(context.Context) (json.RawMessage, error)
	// EntryDirs are the directories that Entry reads, such as that of a mounted ConfigMap. A change
	// in one calls Entry again.
	EntryDirs []string

	// SourceDir has the files to install. All of them go into BinDir, except those with the name of
	// one of the installer's own files. The plugin must be among them, and executable, unless
	// SkipBinaries names it. Empty: another program brings the binaries.
	SourceDir string
	// Builds are the names in SourceDir of several builds of the plugin. The build that Build
	// returns is installed as TYPE, and the others are not. Empty: TYPE.
	Builds []string
	// Build returns the one of Builds to install. It is called at each look. Nil: the first.
	Build func(context.Context) string
	// KeepBinaries means that binaries that exist in BinDir stay as they are.
	KeepBinaries bool
	// SkipBinaries are names of files that are not installed.
	SkipBinaries []string

	// NetDir is the node's directory of CNI configurations. Empty: /etc/cni/net.d.
	NetDir string
	// NodeNetDir is the node's path of NetDir, for links with absolute targets. Empty: NetDir.
	NodeNetDir string
	// BinDir is the node's directory of CNI binaries. It also has the claim, the uninstall marker
	// (TYPE.uninstalled) and a lock file (TYPE.lock). Empty: /opt/cni/bin.
	BinDir string
	// SecondBinDir, unless it is empty, gets the plugin as well, if the directory exists and can be
	// written. It is for nodes where the caller does not know in which of two directories the
	// container runtime looks for plugins.
	SecondBinDir string
	// RunDir is the directory of the plugin and its daemon. It is created if it is missing, and a
	// reboot may remove it. Empty: /var/run/TYPE.
	RunDir string
	// CacheDir is libcni's cache on the node, which shows whether running pods still need the
	// plugin. Empty: /var/lib/cni.
	CacheDir string
	// Sockets are the paths in RunDir of sockets that a daemon may leave. An uninstall removes
	// those on which no program listens, and a directory that contains nothing else.
	Sockets []string
	// Records are names of a daemon's files beside the kubeconfig. An uninstall removes them.
	Records []string

	// Kubeconfig is how the plugin reaches the API server. Nil: the plugin has no kubeconfig.
	Kubeconfig *Kubeconfig

	// ClaimName is the name of the claim in BinDir. Empty: TYPE.claim.
	ClaimName string
	// Owner is the name of the program that installs, for the records on the node, such as
	// namespace/DaemonSet. Empty: TYPE.
	Owner string
	// Version is the installer's version, for the records on the node. It may be empty.
	Version string
	// Now returns the time. Nil: [time.Now].
	Now func() time.Time

	// OnEvent, unless it is nil, receives what is done and found, from several goroutines.
	OnEvent func(Event)
	// OnRestore, unless it is nil, is called after the plugin was restored in the CNI
	// configuration, with the program that had removed it.
	OnRestore func(reconciler.Change)
	// OnTake, unless it is nil, is called when this installer has taken the node, at first and
	// after a newer one has ended. It must not block.
	OnTake func()
}

// Kubeconfig is the input of the plugin's kubeconfig, and its path.
type Kubeconfig struct {
	// Path is the file's path; the name must end in "kubeconfig". Empty: TYPE-kubeconfig in RunDir.
	Path string
	// Mode is the file's permission bits, limited by [kubeconfig.CheckMode]. Zero: 0600.
	Mode fs.FileMode
	// Protocol, Host and Port are the API server's address, for [kubeconfig.ServerURL].
	Protocol, Host, Port string
	// Insecure turns off the verification of the API server's certificate. CAFile is not read then.
	Insecure bool
	// TokenFile has the token; if it is empty, the pod's service account provides the token. A
	// changed file updates the kubeconfig.
	TokenFile string
	// CAFile has the certificate of the API server's authority. Empty: ca.crt beside the token.
	CAFile string
	// User is the name of the user, the cluster and the context in the file. Empty: TYPE.
	User string
}

// OptionError is an error that another value of an option may correct. Its text does not name the
// option: a program names its own settings.
type OptionError struct {
	// Option is the field's name in [Options], or "Kubeconfig.CAFile".
	Option string
	Err    error
}

// Error returns the text of Err.
func (e *OptionError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *OptionError) Unwrap() error { return e.Err }

// serviceAccountToken is where the kubelet mounts a pod's token.
const serviceAccountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path, not a secret

func (o Options) filled() Options {
	typ := o.Want.Plugin.Type
	o.NetDir = cmp.Or(o.NetDir, "/etc/cni/net.d")
	o.NodeNetDir = cmp.Or(o.NodeNetDir, o.NetDir)
	o.BinDir = cmp.Or(o.BinDir, "/opt/cni/bin")
	o.RunDir = cmp.Or(o.RunDir, "/var/run/"+typ)
	o.CacheDir = cmp.Or(o.CacheDir, "/var/lib/cni")
	o.ClaimName = cmp.Or(o.ClaimName, typ+".claim")
	o.Owner = cmp.Or(o.Owner, typ)
	if len(o.Builds) == 0 {
		o.Builds = []string{typ}
	}
	if len(o.Want.Plugin.Body) == 0 {
		o.Want.Plugin.Body = emptyEntry(typ)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	if o.OnRestore == nil {
		o.OnRestore = func(reconciler.Change) {}
	}
	if o.OnTake == nil {
		o.OnTake = func() {}
	}
	if o.Kubeconfig == nil {
		return o
	}
	k := *o.Kubeconfig
	k.Path = cmp.Or(k.Path, filepath.Join(o.RunDir, typ+"-kubeconfig"))
	k.TokenFile = cmp.Or(k.TokenFile, serviceAccountToken)
	k.CAFile = cmp.Or(k.CAFile, filepath.Join(filepath.Dir(k.TokenFile), "ca.crt"))
	k.User = cmp.Or(k.User, typ)
	k.Mode = cmp.Or(k.Mode, 0o600)
	o.Kubeconfig = &k
	return o
}

func emptyEntry(plugin string) []byte { return []byte(`{"type":"` + plugin + `"}`) }

// plugin returns the plugin's type in CNI configurations, which is its binary's name.
func (o Options) plugin() string { return o.Want.Plugin.Type }

// markerName returns the name of the uninstall marker. The plugin looks for it beside itself.
func (o Options) markerName() string { return o.plugin() + ".uninstalled" }

// lockName returns the name of the file in BinDir that daemons and uninstalls of the plugin lock.
func (o Options) lockName() string { return o.plugin() + ".lock" }

// requestName returns the name of the file in RunDir with the request to uninstall.
func (o Options) requestName() string { return o.plugin() + ".uninstall-on-exit" }

// records returns the names in BinDir of the installer's own files.
func (o Options) records() []string { return []string{o.ClaimName, o.markerName(), o.lockName()} }

// bringsPlugin reports whether the installer copies the plugin's binary itself.
func (o Options) bringsPlugin() bool {
	return o.SourceDir != "" && !slices.Contains(o.SkipBinaries, o.plugin())
}

func (o Options) kubeconfigPath() string {
	if o.Kubeconfig == nil {
		return ""
	}
	return o.Kubeconfig.Path
}

// build returns the name in SourceDir of the plugin's build to install.
func (o Options) build(ctx context.Context) string {
	if o.Build == nil {
		return o.Builds[0]
	}
	return o.Build(ctx)
}

func (o Options) entry(ctx context.Context) (json.RawMessage, error) {
	if o.Entry == nil {
		return o.Want.Plugin.Body, nil
	}
	return o.Entry(ctx)
}
