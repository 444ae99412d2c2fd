// SPDX-License-Identifier: Apache-2.0

package settings

import "github.com/meshcni/meshcni/interception/plugin/pluginconf"

// places are the settings for paths, in this container's file system.
func places() []Setting {
	t := table{group: Places}
	t.add("cni-conf-name", "", fileName(func(s *Settings) *string { return &s.ConfName }),
		"primary CNI configuration file; empty: the first valid one in the directory, by name")
	t.add("mounted-cni-net-dir", "/host/etc/cni/net.d", ownDirectory(func(s *Settings) *string { return &s.NetDir }),
		"the node's CNI configuration directory, as mounted here", locates)
	t.add("mounted-cni-bin-dir", "/host/opt/cni/bin", ownDirectory(func(s *Settings) *string { return &s.BinDir }),
		"the node's CNI binary directory, as mounted here", locates)
	t.add("mounted-cni-cache-dir", "/host/var/lib/cni", directory(func(s *Settings) *string { return &s.CacheDir }),
		"libcni's cache on the node (/var/lib/cni there), as mounted here; tells uninstall whether pods still need the binary", locates)
	t.add("cni-bin-source-dir", "/opt/cni/bin", directory(func(s *Settings) *string { return &s.SourceDir }),
		"the plugin binaries to install")
	t.add("cni-agent-run-dir", PluginPaths().RunDir, ownDirectory(func(s *Settings) *string { return &s.RunDir }),
		"directory for the plugin's kubeconfig and the sockets, the same path here and on the node", locates)
	t.add(DirectorySetting, DefaultDirectory, optionalPath(func(s *Settings) *string { return &s.Directory }),
		"a directory with a file for each setting, such as a mounted ConfigMap; it is watched, and may be missing; empty: none")
	return t.rows
}

// installation are the settings for how the plugin is added to the network that the container
// runtime uses.
func installation() []Setting {
	t := table{group: Installation}
	t.add("install-mode", "", oneOf(func(s *Settings) *string { return &s.AskedMode }, installModes()...),
		"splice: into the primary list; owned: into a list of our own that sorts first; dropin: beside the list, in the directory that is "+
			"named after the network; standalone: for Multus; auto; empty: what the next two ask for, else splice, or where the primary "+
			"configuration is a symbolic link dropin or owned")
	t.add("chained-cni-plugin", "true", chained(),
		"false is install-mode=standalone; cni-conf-name is then the name of the plugin's own file")
	t.add("istio-owned-cni-config", "false", boolean(func(s *Settings) *bool { return &s.Owned }),
		"true is install-mode=owned")
	t.add("istio-owned-cni-config-filename", "", fileName(func(s *Settings) *string { return &s.OwnFile }),
		"name of our own list with install-mode=owned; it must sort first; empty: "+ownedFile,
		also("ISTIO_OWNED_CNI_CONF_FILENAME")) // as Istio's chart spells it
	t.add("cni-conf-group-read", "false", boolean(func(s *Settings) *bool { return &s.GroupRead }),
		"CNI configurations of our own have mode 0640 instead of 0600")
	t.add("container-runtime-version", "", text(func(s *Settings) *string { return &s.Runtime }),
		"the node's status.nodeInfo.containerRuntimeVersion, such as containerd://2.1.4; tells auto and dropin whether the runtime reads drop-ins")
	return t.rows
}

// server are the settings for how the plugin reaches the API server.
func server() []Setting {
	t := table{group: Server}
	t.add("service-account-dir", "/var/run/secrets/kubernetes.io/serviceaccount",
		directory(func(s *Settings) *string { return &s.ServiceAccountDir }), "the service account's token and CA certificate")
	t.add("kube-ca-file", "", optionalPath(func(s *Settings) *string { return &s.CAFile }),
		"CA certificate of the API server; empty: ca.crt of the service account")
	t.add("kubernetes-service-protocol", "https", oneOf(func(s *Settings) *string { return &s.APIProtocol }, "https", "http", ""),
		"how the plugin reaches the API server; http sends no token, goes to a stand-in without authentication only, and needs skip-tls-verify")
	t.add("kubernetes-service-host", "", text(func(s *Settings) *string { return &s.APIHost }),
		"API server's name or address; Kubernetes sets the variable")
	t.add("kubernetes-service-port", "", port(func(s *Settings) *string { return &s.APIPort }),
		"API server's port; Kubernetes sets the variable")
	t.add("skip-tls-verify", "false", boolean(func(s *Settings) *bool { return &s.SkipTLSVerify }),
		"the plugin doesn't verify the API server's certificate")
	t.add("kubeconfig-mode", "0600", kubeconfigMode(),
		"permission bits of the plugin's kubeconfig; octal needs its leading 0")
	t.add("plugin-kubeconfig", "", optionalPath(func(s *Settings) *string { return &s.PluginKubeconfig }),
		"where the plugin finds its kubeconfig on the node, if not in cni-agent-run-dir", live)
	return t.rows
}

// plugin are the settings in the plugin's entry in the CNI configuration.
func plugin() []Setting {
	t := table{group: Plugin}
	t.add("exclude-namespaces", "", namespaces(func(s *Settings) *[]string { return &s.ExcludeNamespaces }),
		"namespaces whose pods are left alone, separated by commas", live)
	t.add("fail-policy", "", oneOf(func(s *Settings) *string { return &s.FailPolicy.Default }, append(pluginconf.FailPolicies(), "")...),
		"what becomes of a pod that no source knows: closed, it is not started; open, it starts uncaptured; empty: closed", live)
	t.add("fail-open-namespaces", "", namespaces(func(s *Settings) *[]string { return &s.FailPolicy.Open }),
		"namespaces for which fail-policy is open, separated by commas", live)
	t.add("fail-closed-namespaces", "", namespaces(func(s *Settings) *[]string { return &s.FailPolicy.Closed }),
		"namespaces for which fail-policy is closed, separated by commas", live)
	t.add("status-policy", "", oneOf(func(s *Settings) *string { return &s.StatusPolicy }, append(pluginconf.StatusPolicies(), "")...),
		"when the plugin may tell the container runtime that it is not ready; empty: after-first-ready, see the plugin's README", live)
	t.add("plugin-timeout", "", duration(func(s *Settings) *pluginconf.Timeout { return &s.PluginTimeout }),
		"how long the plugin takes for a pod at most, such as 20s; it should be shorter than the container runtime's own time; empty: 30s", live)
	t.add("abandoned-after", "", duration(func(s *Settings) *pluginconf.Timeout { return &s.AbandonedAfter }),
		"for how long no daemon must answer, and the API server refuse its token, until the plugin's errors say what to run on the node; "+
			"empty: 1h", live)
	t.add("dataplane", "", oneOf(func(s *Settings) *string { return &s.PluginDataplane }, append(pluginconf.Dataplanes(), "")...),
		"how the plugin writes rules: auto, nftables or iptables; auto is what the kernel has; empty: as native-nftables says", live)
	t.add("native-nftables", "false", boolean(func(s *Settings) *bool { return &s.NativeNFTables }),
		"the plugin uses nftables and nothing else", live)
	t.add("plugin-proc-root", "", optionalPath(func(s *Settings) *string { return &s.PluginProcRoot }),
		"where the plugin finds the node's proc file system, if it isn't at /proc", live)
	t.add("pod-namespace", "", label(func(s *Settings) *string { return &s.PodNamespace }),
		"the namespace this daemon runs in")
	t.add("agent-name", "", label(func(s *Settings) *string { return &s.AgentName }),
		"the DaemonSet this daemon belongs to, whose own pods the plugin lets pass; empty: taken from pod-name")
	t.add("pod-name", "", podName(),
		"this daemon's pod")
	return t.rows
}

// daemon are the settings of this process.
func daemon() []Setting {
	t := table{group: Daemon}
	t.add("log_output_level", "info", logOutputLevel(),
		"level, or scope:level pairs separated by commas; scope cni-plugin is the plugin, default is everything", live)
	t.add("log_as_json", "false", boolean(func(s *Settings) *bool { return &s.LogJSON }),
		"log JSON instead of text")
	t.add("health-address", ":8000", address(func(s *Settings) *string { return &s.HealthAddress }),
		"where /healthz and /readyz are served; port 0 picks a free one")
	t.add("monitoring-port", "15014", monitoringPort(),
		"port of /metrics, on all addresses; 0: not served")
	t.add("pprof-address", "", loopback(func(s *Settings) *string { return &s.PprofAddress }),
		"loopback address and port of /debug/pprof/, such as 127.0.0.1:6060; empty: not served")
	t.add("node-name", "", label(func(s *Settings) *string { return &s.NodeName }),
		"the node this daemon runs on; with it, its pods are watched, so that plugins need not ask the API server",
		also("KUBERNETES_NODE_NAME", "REPAIR_NODE_NAME"))
	t.add("node-watcher", "", optionalPath(func(s *Settings) *string { return &s.NodeWatcher }),
		"the program that watches the node's pods; empty: node-watcher beside this one")
	t.add("readiness-taint", "", taintKey(),
		"key of a taint, such as meshcni.io/not-ready, that is taken off the node when the plugin is there and verified, and at an uninstall; "+
			"the program that creates nodes puts it on; needs node-name, and a role with get and patch of nodes; empty: none")
	t.add("fixed-default-network", "false", boolean(func(s *Settings) *bool { return &s.FixedDefaultNetwork }),
		"the runtime uses the network of cni-conf-name by name (CRI-O's cni_default_network), so that files that sort before it don't matter")
	t.add("uninstall-on-exit", "false", boolean(func(s *Settings) *bool { return &s.UninstallOnExit }),
		"uninstall when stopped (SIGTERM, SIGINT); otherwise everything stays in place for the next version")
	t.add("uninstall-on-deletion", "true", boolean(func(s *Settings) *bool { return &s.UninstallOnDeletion }),
		"when stopped, ask the API server whether this DaemonSet was deleted, which needs a role with get of it, and uninstall if so; "+
			"not with skip-tls-verify")
	t.add("installation-config-map", "", label(func(s *Settings) *string { return &s.InstallationConfigMap }),
		"the ConfigMap in pod-namespace that only the end of the installation removes; it is watched where node-name is set. If it is gone and "+
			"the API server refuses to answer for the DaemonSet, a daemon that is stopped uninstalls; empty: none")
	return t.rows
}

// generation are the settings of Istio's install-cni before 1.23.
func generation() []Setting {
	t := table{group: Generation}
	t.add("cni-network-config", "", text(func(s *Settings) *string { return &s.Template }),
		"the plugin's entry, with placeholders such as __KUBECONFIG_FILEPATH__; settings above that are given go before it",
		live, also("cni_network_config"))
	t.add("cni-network-config-file", "", optionalPath(func(s *Settings) *string { return &s.TemplateFile }),
		"a file with the same; it goes before cni-network-config, and may be missing where that is given")
	t.add("log-level", "", pluginLevel(func(s *Settings) *string { return &s.TemplateLevel }),
		"__LOG_LEVEL__ in the template; empty: the plugin's level in log_output_level", live)
	t.add("cni-net-dir", "/etc/cni/net.d", directory(func(s *Settings) *string { return &s.NodeNetDir }),
		"the CNI configuration directory's path on the node, for __KUBECONFIG_FILEPATH__ and for symbolic links with absolute targets")
	t.add("kubecfg-file-name", "", kubeconfigName(func(s *Settings) *string { return &s.KubeconfigFile }),
		"name of the plugin's kubeconfig, beside the CNI configurations; empty: ZZZ-istio-cni-kubeconfig with a template, "+
			"and without one it is in cni-agent-run-dir", locates, also("KUBECONFIG_FILENAME"))
	t.add("log-uds-address", "", logSocket(),
		"path of the socket for log lines of Istio's plugin, the same here and on the node; its directory is cni-agent-run-dir", locates)
	t.add("cni-enable-install", "true", boolean(func(s *Settings) *bool { return &s.Install }),
		"install the plugin and keep it installed; false: leave that to another program")
	t.add("update-cni-binaries", "true", boolean(func(s *Settings) *bool { return &s.UpdateBinaries }),
		"replace binaries that are there already")
	t.add("skip-cni-binaries", "", words(func(s *Settings) *[]string { return &s.SkipBinaries }),
		"names of binaries that are not installed, separated by commas or blanks")
	t.add("secondary-cni-bin-dir", "/host/secondary-bin-dir", optionalPath(func(s *Settings) *string { return &s.SecondBinDir }),
		"another directory of the node for the plugin's binary, if it is mounted and can be written; empty: none", locates)
	return t.rows
}

// inert are the settings of Istio's install-cni without effect here.
func inert() []Setting {
	t := table{group: NoEffect, rows: inertOfAmbient()}
	for _, r := range []struct{ name, kind, value string }{
		{"cni-enable-reinstall", "bool", "true"},
		{"ebpf-enabled", "bool", "false"},
		{"repair-run-as-daemon", "bool", "true"},
		{"force-iptables-binary", "string", ""},
		{"log_caller", "string", ""},
		{"log_stacktrace_level", "string", "default:none"},
		{"log_target", "string", "stdout"},
		{"ctrlz_address", "string", "localhost"},
		{"ctrlz_port", "string", "9876"},
	} {
		t.add(r.name, r.value, ignored(r.kind, r.name, r.value), "has no effect yet", noEffect)
	}
	return t.rows
}

// unread returns variables that Istio's charts set, and no program reads.
func unread() []string {
	return []string{"CURRENT_AGENT_VERSION", "ALLOW_SWITCH_TO_HOST_NS", "REVISION"}
}
