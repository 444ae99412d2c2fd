// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the plugin and the daemon on a real Kubernetes: unmodified etcd, API server,
// controllers, scheduler, kubelets and containerd on one machine, without a registry. A run leaves
// nothing on the machine.
//
//	make cluster       a cluster to play with
//	make e2e           all scenarios
//	make e2e SHORT=1   capture, upgrade and uninstall
//	make e2e-soak      a day in production
//
// # Goals
//
// The product's claims are checked from inside real pods, which a kubelet starts through containerd
// with the plugin in the network's configuration list. Each scenario is a test of its own, in its
// own file.
//
// # Non-goals
//
// Tests that need no cluster, which are beside the code that they test. Performance under load, and
// other container runtimes.
package e2e
