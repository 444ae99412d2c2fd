// SPDX-License-Identifier: Apache-2.0

package pluginconf_test

import (
	"fmt"

	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
)

func ExamplePaths_Parse() {
	paths := pluginconf.PathsOf("istio-cni")
	c, err := paths.Parse([]byte(`{
		"type": "istio-cni",
		"log_level": "debug",
		"log_uds_address": "/run/mesh/log.sock",
		"kubernetes": {"kubeconfig": "/etc/cni/net.d/ZZZ-istio-cni-kubeconfig", "exclude_namespaces": ["kube-system"]},
		"fail_policy": {"open": ["batch"]}
	}`))
	fmt.Println(c.Level, c.RunDir, c.Kubeconfig, c.ExcludeNamespaces, c.FailPolicy.Opens("batch"), c.Timeout.Duration(), err)

	_, err = paths.Parse([]byte(`{"type": "istio-cni", "status_policy": "sometimes"}`))
	fmt.Println(err)
	// Output:
	// DEBUG /run/mesh /etc/cni/net.d/ZZZ-istio-cni-kubeconfig [kube-system] true 30s <nil>
	// status_policy is "sometimes", and should be "strict", "after-first-ready" or "off"
}
