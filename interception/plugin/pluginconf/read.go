// SPDX-License-Identifier: Apache-2.0

package pluginconf

import "github.com/meshcni/meshcni/internal/jsonreader"

// read reads the entry, as far as it is usual.
func (c *Config) read(r *jsonreader.Reader) {
	member := func(name string, to any) jsonreader.Member { return jsonreader.Member{Name: name, To: to} }
	r.Object(
		member("cniVersion", &c.CNIVersion), member("name", &c.Name),
		member("prevResult", func(r *jsonreader.Reader) { c.PrevResult = r.Raw() }),
		member("runtimeConfig", func(r *jsonreader.Reader) {
			r.Object(member("io.kubernetes.cri.pod-annotations", &c.RuntimeConfig.PodAnnotations))
		}),
		member("plugin_log_level", &c.LogLevel), member("cni_agent_run_dir", &c.RunDir), member("ambient_enabled", &c.AmbientEnabled),
		member("exclude_namespaces", &c.ExcludeNamespaces), member("pod_namespace", &c.PodNamespace),
		member("native_nftables", &c.NativeNFTables),
		member("log_level", &c.OldLogLevel), member("log_uds_address", &c.LogSocket),
		member("kubernetes", func(r *jsonreader.Reader) {
			r.Object(member("kubeconfig", &c.Kubernetes.Kubeconfig), member("exclude_namespaces", &c.Kubernetes.ExcludeNamespaces))
		}),
		member("kubeconfig", &c.Kubeconfig), member("dataplane", &c.Dataplane), member("agent_name", &c.AgentName),
		member("proc_root", &c.ProcRoot), member("timeout", (*string)(&c.Timeout)),
		member("fail_policy", func(r *jsonreader.Reader) {
			r.Object(member("default", &c.FailPolicy.Default), member("open", &c.FailPolicy.Open), member("closed", &c.FailPolicy.Closed))
		}),
		member("status_policy", (*string)(&c.StatusPolicy)), member("abandoned_after", (*string)(&c.AbandonedAfter)),
	)
}
