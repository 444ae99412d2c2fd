// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"strings"
)

// containerdConfiguration returns a configuration in a version that containerd 1.6 reads too.
func containerdConfiguration(pause string) string {
	return fmt.Sprintf(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  # Root may lack CAP_SYS_RESOURCE, and runc then fails on a score below zero.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`, pause)
}

func taints(all []string) string {
	var list []string
	for _, taint := range all {
		key, effect, _ := strings.Cut(taint, ":")
		list = append(list, fmt.Sprintf("{key: %q, effect: %q}", key, effect))
	}
	return strings.Join(list, ", ")
}

// kubeletConfiguration returns a configuration that changes nothing on the machine and ignores how
// full the machine is.
func kubeletConfiguration(n *Node) string {
	keys := n.cluster.keys
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: "::"
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %q}}
authorization: {mode: Webhook}
tlsCertFile: %q
tlsPrivateKeyFile: %q
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
failCgroupV1: false
oomScoreAdj: 0
protectKernelDefaults: true
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
resolvConf: %q
clusterDomain: cluster.local
evictionHard: {memory.available: 1Mi, nodefs.available: 0%%, nodefs.inodesFree: 0%%, imagefs.available: 0%%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeStatusUpdateFrequency: 2s
fileCheckFrequency: 2s
volumePluginDir: /var/lib/kubelet/volumes
maxPods: 200
registerNode: true
registerWithTaints: [%s]
`, keys.path("ca.crt"), keys.path(n.Name+".crt"), keys.path(n.Name+".key"), n.directory()+"/resolv.conf",
		taints(n.options.Taints))
}
