// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"slices"
	"strings"
)

// A Setting is one row of the table.
type Setting struct {
	// Name is the flag's name.
	Name string
	// Default is the value, as one would write it, of a setting that isn't given.
	Default string
	// Usage says what the setting does, in one line.
	Usage string
	// Inert says that the setting is accepted for the sake of existing manifests and changes nothing.
	Inert bool
	// Locates says that the setting tells where things were installed, so that an uninstall can't do without a good value.
	Locates bool

	parser
}

// Env is the name of the environment variable.
func (s Setting) Env() string {
	return strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// Kind is the type of value, as help shows it: "bool", "string", "path", ….
func (s Setting) Kind() string { return s.kind }

// All returns every setting, in the order of the documentation.
func All() []Setting {
	return slices.Concat(places(), plugin(), daemon(), inert())
}

func row(name, value string, p parser, usage string) Setting {
	return Setting{Name: name, Default: value, Usage: usage, parser: p}
}

// locating is a row that an uninstall needs.
func locating(name, value string, p parser, usage string) Setting {
	s := row(name, value, p, usage)
	s.Locates = true
	return s
}

// places says where things are: on this container's file system, and the API server.
func places() []Setting {
	return []Setting{
		row("cni-conf-name", "", fileName(func(s *Settings) *string { return &s.ConfName }),
			"primary CNI configuration file; empty: the first valid one in the directory, by name"),
		locating("mounted-cni-net-dir", "/host/etc/cni/net.d", directory(func(s *Settings) *string { return &s.NetDir }),
			"the node's CNI configuration directory, as mounted here"),
		locating("mounted-cni-bin-dir", "/host/opt/cni/bin", directory(func(s *Settings) *string { return &s.BinDir }),
			"the node's CNI binary directory, as mounted here"),
		locating("mounted-cni-cache-dir", "/host/var/lib/cni", directory(func(s *Settings) *string { return &s.CacheDir }),
			"libcni's cache on the node (/var/lib/cni there), as mounted here; tells uninstall whether pods still need the binary"),
		row("cni-bin-source-dir", "/opt/cni/bin", directory(func(s *Settings) *string { return &s.SourceDir }),
			"the plugin binaries to install"),
		locating("cni-agent-run-dir", "/var/run/istio-cni", directory(func(s *Settings) *string { return &s.RunDir }),
			"directory for the plugin's kubeconfig, the same path here and on the node"),
		row("service-account-dir", "/var/run/secrets/kubernetes.io/serviceaccount",
			directory(func(s *Settings) *string { return &s.ServiceAccountDir }), "the service account's token and CA certificate"),
		row("kube-ca-file", "", optionalPath(func(s *Settings) *string { return &s.CAFile }),
			"CA certificate of the API server; empty: ca.crt of the service account"),
		row("kubernetes-service-protocol", "https", oneOf(func(s *Settings) *string { return &s.APIProtocol }, "https", "http", ""),
			"how the plugin reaches the API server; http sends no token, goes to a stand-in without authentication only, and needs skip-tls-verify"),
		row("kubernetes-service-host", "", text(func(s *Settings) *string { return &s.APIHost }),
			"API server's name or address; Kubernetes sets the variable"),
		row("kubernetes-service-port", "", port(func(s *Settings) *string { return &s.APIPort }),
			"API server's port; Kubernetes sets the variable"),
		row("skip-tls-verify", "false", boolean(func(s *Settings) *bool { return &s.SkipTLSVerify }),
			"the plugin doesn't verify the API server's certificate"),
		row("kubeconfig-mode", "0600", kubeconfigMode(),
			"permission bits of the plugin's kubeconfig; octal needs its leading 0"),
	}
}

// plugin is what the plugin's entry in the CNI configuration says.
func plugin() []Setting {
	return []Setting{
		row("exclude-namespaces", "", namespaces(),
			"namespaces whose pods are left alone, separated by commas"),
		row("pod-namespace", "", label(func(s *Settings) *string { return &s.PodNamespace }),
			"the namespace this daemon runs in"),
		row("agent-name", "", label(func(s *Settings) *string { return &s.AgentName }),
			"the DaemonSet this daemon belongs to, whose own pods the plugin lets pass; empty: taken from pod-name"),
		row("pod-name", "", podName(),
			"this daemon's pod"),
		row("native-nftables", "false", boolean(func(s *Settings) *bool { return &s.NativeNFTables }),
			"the plugin uses nftables and nothing else"),
		row("dataplane", "", oneOf(func(s *Settings) *string { return &s.PluginDataplane }, "auto", "nftables", ""),
			"how the plugin programs rules: auto or nftables; empty: as native-nftables says"),
		row("status-policy", "", oneOf(func(s *Settings) *string { return &s.StatusPolicy }, "strict", "after-first-ready", "off", ""),
			"when the plugin may tell the container runtime that it is not ready; empty: after-first-ready, see the plugin's README"),
		row("plugin-kubeconfig", "", optionalPath(func(s *Settings) *string { return &s.PluginKubeconfig }),
			"where the plugin finds its kubeconfig on the node, if not in cni-agent-run-dir"),
	}
}

// daemon is about this process.
func daemon() []Setting {
	return []Setting{
		row("health-address", ":8000", address(func(s *Settings) *string { return &s.HealthAddress }),
			"where /healthz and /readyz are served; port 0 picks a free one"),
		row("fixed-default-network", "false", boolean(func(s *Settings) *bool { return &s.FixedDefaultNetwork }),
			"the runtime uses the network of cni-conf-name by name (CRI-O's cni_default_network), so that files that sort before it don't matter"),
		row("uninstall-on-exit", "false", boolean(func(s *Settings) *bool { return &s.UninstallOnExit }),
			"uninstall when told to stop (SIGTERM, SIGINT); otherwise everything stays in place for the next version"),
		row("log_output_level", "info", logOutputLevel(),
			"level, or scope:level pairs separated by commas; scope cni-plugin is the plugin, default is everything"),
		row("log_as_json", "false", boolean(func(s *Settings) *bool { return &s.LogJSON }),
			"log JSON instead of text"),
		row("chained-cni-plugin", "true", only(true, "a standalone CNI configuration is not supported yet"),
			"add the plugin to the primary configuration; false (standalone) is not supported yet"),
		row("istio-owned-cni-config", "false", only(false, "a CNI configuration file of our own is not supported yet"),
			"keep a configuration file of our own; true is not supported yet"),
		row("ambient-enabled", "false", only(false, "ambient mode is not supported yet, and pods that rely on it would pass the mesh by"),
			"ambient mode; true is not supported yet"),
	}
}

// inert are the settings of Istio's install-cni without effect here.
func inert() []Setting {
	var rows []Setting
	for _, r := range []struct{ name, kind, value string }{
		{"enable-ambient-detection-retry", "bool", "false"},
		{"ambient-enablement-selector", "string", ""},
		{"ambient-dns-capture", "bool", "false"},
		{"ambient-ipv6", "bool", "false"},
		{"ambient-disable-safe-upgrade", "bool", "false"},
		{"ambient-reconcile-pod-rules-on-startup", "bool", "false"},
		{"ztunnel-uds-address", "string", "/var/run/ztunnel/ztunnel.sock"},
		{"istio-owned-cni-config-filename", "string", ""},
		{"cni-conf-group-read", "bool", "false"},
		{"cni-network-config", "string", ""},
		{"cni-network-config-file", "string", ""},
		{"monitoring-port", "string", "15014"},
		{"repair-enabled", "bool", "true"},
		{"repair-repair-pods", "bool", "false"},
		{"repair-delete-pods", "bool", "false"},
		{"repair-label-pods", "bool", "false"},
		{"repair-broken-pod-label-key", "string", "cni.istio.io/uninitialized"},
		{"repair-broken-pod-label-value", "string", "true"},
		{"repair-node-name", "string", ""},
		{"repair-sidecar-annotation", "string", "sidecar.istio.io/status"},
		{"repair-init-container-name", "string", "istio-validation"},
		{"repair-init-container-termination-message", "string", ""},
		{"repair-init-container-exit-code", "string", "126"},
		{"repair-label-selectors", "string", ""},
		{"repair-field-selectors", "string", ""},
		{"force-iptables-binary", "string", ""},
		{"log-level", "string", "warn"},
		{"log_caller", "string", ""},
		{"log_stacktrace_level", "string", "default:none"},
		{"log_target", "string", "stdout"},
		{"ctrlz_address", "string", "localhost"},
		{"ctrlz_port", "string", "9876"},
	} {
		s := row(r.name, r.value, ignored(r.kind, r.name, r.value), "accepted, has no effect yet")
		s.Inert = true
		rows = append(rows, s)
	}
	return rows
}
