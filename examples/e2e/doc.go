// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the plugin and the daemon on a real Kubernetes: etcd, API server, controllers, scheduler, kubelets and containerd, none
// of them changed, on one machine, without a registry and with nothing left behind.
//
//	make cluster       a cluster to play with
//	make e2e           all scenarios
//	make e2e SHORT=1   capture, upgrade and uninstall
//	make e2e-soak      a day in production
//
// # Goals
//
// What is said of the product is seen from inside real pods, which a kubelet has started through containerd with the plugin in the chain of
// the network. Each scenario is a test of its own, in a file of its own.
//
// # Non-goals
//
// What needs no cluster is tested where it is written. Performance under load, and other container runtimes.
package e2e
