// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/meshcni/meshcni/conflist/reconciler"
)

// ErrOptions is in the error for options that can't be followed.
var ErrOptions = errors.New("invalid options")

// Options say what is installed on a node, and where. Paths are absolute, as this process sees them unless said otherwise. Only
// Want.Plugin.Type and SourceDir must be given for an install. [New] checks Want, names and paths; a directory that is missing, and an address
// that leads nowhere, show when they are used.
type Options struct {
	// Want is how the plugin gets into the CNI configuration. Want.Plugin.Type is the plugin's type, and the name of its binary in BinDir;
	// Want.Plugin.Body is its entry, and of no use beside Entry. An empty body is {"type": TYPE}.
	Want reconciler.Want
	// Entry, unless it is nil, returns the entry of this moment, in place of Want.Plugin.Body. It is asked at each look. When it fails, or
	// returns what is no entry of the plugin, the entry that was installed before stays, and is put back when it is taken away.
	Entry func(context.Context) (json.RawMessage, error)
	// EntryDirs are the directories that Entry reads, such as that of a mounted ConfigMap. A change in one calls Entry again.
	EntryDirs []string

	// SourceDir has the files to install, all of which go into BinDir, except those that have the name of a file which the installer itself keeps
	// there. The plugin must be among them, and executable, unless SkipBinaries names it. Empty: another program brings the binaries.
	SourceDir string
	// Builds are the names in SourceDir of several builds of the plugin. The one that Build names is installed as TYPE, and the others are
	// not. Empty: TYPE.
	Builds []string
	// Build names the one of Builds to install. It is asked at each look. Nil: the first.
	Build func(context.Context) string
	// KeepBinaries leaves binaries as they are that are in BinDir already.
	KeepBinaries bool
	// SkipBinaries are names of files that are not installed.
	SkipBinaries []string

	// NetDir is the node's directory of CNI configurations. Empty: /etc/cni/net.d.
	NetDir string
	// NodeNetDir is NetDir as the node calls it, for symbolic links with absolute targets. Empty: NetDir.
	NodeNetDir string
	// BinDir is the node's directory of CNI binaries. The claim, the note of an uninstall (TYPE.uninstalled) and a file that is there to be locked
	// (TYPE.lock) lie there, too. Empty: /opt/cni/bin.
	BinDir string
	// SecondBinDir, unless it is empty, gets the plugin as well, if the directory exists and can be written. It is for nodes of which the caller
	// doesn't know in which of two directories the container runtime looks for plugins.
	SecondBinDir string
	// RunDir is the directory of the plugin and its daemon, which is made if it is missing, and may be lost with a reboot. Empty: /var/run/TYPE.
	RunDir string
	// CacheDir is libcni's cache on the node, which says whether running pods still need the plugin. Empty: /var/lib/cni.
	CacheDir string
	// Sockets are the paths in RunDir of sockets that a daemon may leave. An uninstall removes those at which no program listens, and a
	// directory that holds nothing else.
	Sockets []string
	// Records are names of files that a daemon keeps beside the kubeconfig. An uninstall removes them.
	Records []string

	// Kubeconfig says how the plugin reaches the API server. Nil: the plugin has no kubeconfig.
	Kubeconfig *Kubeconfig

	// ClaimName is the name of the claim in BinDir. Empty: TYPE.claim.
	ClaimName string
	// Owner names who installs, for the records on the node, such as namespace/DaemonSet. Empty: TYPE.
	Owner string
	// Version is the installer's, for the records on the node. It may be empty.
	Version string
	// Now tells the time. Nil: [time.Now].
	Now func() time.Time

	// OnEvent, unless it is nil, is told what is done and found. Several goroutines may call it at once.
	OnEvent func(Event)
	// OnRestore, unless it is nil, is told when the plugin was put back into the CNI configuration, and who had taken it away.
	OnRestore func(reconciler.Change)
	// OnTake, unless it is nil, is told when this installer has taken the node, at first and after a newer one has left. It must not wait.
	OnTake func()
}

// Kubeconfig says what the plugin's kubeconfig is made from, and where it lies.
type Kubeconfig struct {
	// Path is the file's, with a name that ends in "kubeconfig". Empty: TYPE-kubeconfig in RunDir.
	Path string
	// Mode is the file's permission bits, as [kubeconfig.CheckMode] allows them: the file has a token in it. Zero: 0600.
	Mode fs.FileMode
	// Protocol, Host and Port are where the API server is, as [kubeconfig.ServerURL] takes them.
	Protocol, Host, Port string
	// Insecure says not to verify the API server's certificate. CAFile isn't read then.
	Insecure bool
	// TokenFile holds the token; when empty, the pod's service account provides it. A changed file updates the kubeconfig.
	TokenFile string
	// CAFile has the certificate of the API server's authority. Empty: ca.crt beside the token.
	CAFile string
	// User is the name of the user, the cluster and the context in the file. Empty: TYPE.
	User string
}

// An OptionError is an error that another value of an option may mend. Its text leaves out which: a program names its own settings.
type OptionError struct {
	// Option is the field's name in [Options], or "Kubeconfig.CAFile".
	Option string
	Err    error
}

// Error is the text of Err.
func (e *OptionError) Error() string { return e.Err.Error() }

// Unwrap gives Err.
func (e *OptionError) Unwrap() error { return e.Err }

// serviceAccountToken is where the kubelet mounts a pod's token.
const serviceAccountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path, and no secret

// filled puts the documented values in the place of empty ones.
func (o Options) filled() Options {
	typ := o.Want.Plugin.Type
	fill := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	fill(&o.NetDir, "/etc/cni/net.d")
	fill(&o.NodeNetDir, o.NetDir)
	fill(&o.BinDir, "/opt/cni/bin")
	fill(&o.RunDir, "/var/run/"+typ)
	fill(&o.CacheDir, "/var/lib/cni")
	fill(&o.ClaimName, typ+".claim")
	fill(&o.Owner, typ)
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
	fill(&k.Path, filepath.Join(o.RunDir, typ+"-kubeconfig"))
	fill(&k.TokenFile, serviceAccountToken)
	fill(&k.CAFile, filepath.Join(filepath.Dir(k.TokenFile), "ca.crt"))
	fill(&k.User, typ)
	if k.Mode == 0 {
		k.Mode = 0o600
	}
	o.Kubeconfig = &k
	return o
}

// emptyEntry is an entry of a plugin that says nothing but which one that is.
func emptyEntry(plugin string) []byte { return []byte(`{"type":"` + plugin + `"}`) }

// plugin is the plugin's type in CNI configurations, and its binary's name.
func (o Options) plugin() string { return o.Want.Plugin.Type }

// markerName is the name of the note that the plugin was uninstalled. The plugin looks for it beside itself.
func (o Options) markerName() string { return o.plugin() + ".uninstalled" }

// lockName is the name of the file in BinDir by whose lock daemons and uninstalls of the plugin know of each other.
func (o Options) lockName() string { return o.plugin() + ".lock" }

// requestName is a file in the run directory that asks the daemon to uninstall when it is told to stop.
func (o Options) requestName() string { return o.plugin() + ".uninstall-on-exit" }

// records are the names in BinDir of files that the installer itself keeps.
func (o Options) records() []string { return []string{o.ClaimName, o.markerName(), o.lockName()} }

// bringsPlugin says whether the installer copies the plugin's binary itself.
func (o Options) bringsPlugin() bool {
	return o.SourceDir != "" && !slices.Contains(o.SkipBinaries, o.plugin())
}

// kubeconfigPath is the kubeconfig's; empty without one.
func (o Options) kubeconfigPath() string {
	if o.Kubeconfig == nil {
		return ""
	}
	return o.Kubeconfig.Path
}

// build is the name in SourceDir of the plugin's build to install.
func (o Options) build(ctx context.Context) string {
	if o.Build == nil {
		return o.Builds[0]
	}
	return o.Build(ctx)
}

// entry is the plugin's entry of this moment.
func (o Options) entry(ctx context.Context) (json.RawMessage, error) {
	if o.Entry == nil {
		return o.Want.Plugin.Body, nil
	}
	return o.Entry(ctx)
}
