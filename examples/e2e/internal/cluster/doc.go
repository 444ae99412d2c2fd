// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a Kubernetes cluster on this machine: etcd, API server, controllers and
// scheduler as processes, and each node as a tree of processes in its own namespaces.
//
//	the caller's namespaces (package sandbox)     bridge 172.30.77.1, fd00:172:30:77::1
//	 ├─ etcd, kube-apiserver, kube-controller-manager, kube-scheduler
//	 ├─ node1  own network, mounts, processes, ipc, hostname
//	 │   │     172.30.77.11   pods 10.244.1.0/24, fd00:10:244:1::/64
//	 │   ├─ containerd ─ shims ─ pods
//	 │   └─ kubelet, kube-proxy
//	 └─ node2   …
//
// In a node, /etc, /opt and /var are overlays on the machine's, and /run is its own. So
// /opt/cni/bin, /etc/cni/net.d and /run/netns are at their usual paths, and what is written to them
// stays in the node's directory.
//
// A program that uses the package calls [Main] first: the first process of a node is that program,
// started again.
//
// # Goals
//
// Whatever happens to the process that started the cluster, only a directory outlives it, which
// [Sweep] removes. A node can be ended and started again, as by a power cut and a boot. Each
// component's output is kept in a file.
//
// # Non-goals
//
// The cluster's own security: its keys are in its directory. DNS, storage, an ordinary user instead
// of root.
package cluster
